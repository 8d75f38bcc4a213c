# portable/trimtab: the program without MPI, for images and wheels, which contain every library that it needs. Processes
# connect over TCP. It has the objects of `trimtab` but one: mpi.c compiled without TT_HAVE_MPI comes first, so that the
# archive's, and with it the library, is not linked.
if(TT_SANITIZE OR TT_SANITIZE_THREAD OR TT_FUZZ)
  return()
endif()
add_executable(trimtab_portable src/cli/main.c src/comm/mpi.c)
target_link_libraries(trimtab_portable PRIVATE tt_cli)
target_link_options(trimtab_portable PRIVATE -Wl,--as-needed)
set_target_properties(trimtab_portable PROPERTIES
  OUTPUT_NAME trimtab RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable SKIP_BUILD_RPATH ON)
