# Additional needs of back ends and communicators: MPI, per-file instruction sets.
get_target_property(backend_kind tt_backend TYPE)
if(NOT backend_kind STREQUAL "INTERFACE_LIBRARY")
  # Vectors wider than those of the base architecture are passed only between always-inline functions.
  target_compile_options(tt_backend PRIVATE -Wno-psabi)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # Chosen at run time (cpu/gemm/gemm.c): the rest of the program runs on any x86-64.
    set_source_files_properties(src/backend/cpu/gemm/avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
    set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512)
    set_source_files_properties(src/backend/cpu/gemm/avx512.c PROPERTIES COMPILE_OPTIONS "${avx512}")
    set_source_files_properties(src/backend/cpu/gemm/avx512_bf16.c PROPERTIES COMPILE_OPTIONS
      "${avx512};-mavx512bf16")
    set_source_files_properties(src/backend/cpu/gemm/amx.c PROPERTIES COMPILE_OPTIONS
      "${avx512};-mamx-tile;-mamx-bf16")
  else()
    set_source_files_properties(src/backend/cpu/gemm/avx2.c src/backend/cpu/gemm/avx512.c
      src/backend/cpu/gemm/avx512_bf16.c src/backend/cpu/gemm/amx.c
      PROPERTIES HEADER_FILE_ONLY TRUE)
  endif()
  if(TT_FUZZ)
    # Kernels parse nothing, and with sanitizers the largest of them compile for minutes.
    file(GLOB_RECURSE kernels RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src/backend/cpu/*.c)
    set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
  endif()
endif()
get_target_property(comm_kind tt_comm TYPE)
if(MPI_C_FOUND AND NOT comm_kind STREQUAL "INTERFACE_LIBRARY")
  target_compile_definitions(tt_comm PRIVATE TT_HAVE_MPI=1)
  target_link_libraries(tt_comm PUBLIC MPI::MPI_C)
endif()
