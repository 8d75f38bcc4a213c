# tt_openmp: OpenMP for the floors that compute. Executables get GNU's runtime as a static library where there is
# one, with the wait policy (src/backend/cpu/wait_policy.c has the reason); the shared library uses the system's.
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
set(tt_program_openmp ${OpenMP_C_LIBRARIES})
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libgomp.a OUTPUT_VARIABLE tt_static_gomp
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(EXISTS "${tt_static_gomp}")
    set(tt_program_openmp ${tt_static_gomp} ${CMAKE_DL_LIBS})
  else()
    message(STATUS "OpenMP: no libgomp.a; waiting threads of the program spin unless OMP_WAIT_POLICY=passive is set")
  endif()
endif()
add_library(tt_wait_policy OBJECT src/backend/cpu/wait_policy.c)
target_include_directories(tt_wait_policy PRIVATE src include)
set(tt_is_program "$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>")
add_library(tt_openmp INTERFACE)
target_compile_options(tt_openmp INTERFACE ${OpenMP_C_FLAGS})
target_sources(tt_openmp INTERFACE $<${tt_is_program}:$<TARGET_OBJECTS:tt_wait_policy>>)
target_link_libraries(tt_openmp INTERFACE
  "$<IF:${tt_is_program},${tt_program_openmp},${OpenMP_C_LIBRARIES}>" Threads::Threads)
