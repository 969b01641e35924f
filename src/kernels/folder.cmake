# Compiles src/kernels/cpu/*.cc once per instruction set of cpu/isa_list.cmake (included by src/CMakeLists.txt).
# Nothing but fill_linear, fill_attention and fill_ops of each set may leave these objects: a weak symbol compiled
# with AVX-512 could be the one the linker keeps for everybody. kernels_symbols (ctest) checks it with nm.
include(${CMAKE_CURRENT_LIST_DIR}/cpu/isa_list.cmake)

file(GLOB isa_sources CONFIGURE_DEPENDS ${dir}/cpu/*.cc)
list(APPEND INVAR_EXCLUDE ${isa_sources})
set(isa_inc_lines "")
set(isa_object_files "")

function(invar_add_isa_set spec out_line out_target)
  string(REPLACE "|" ";" fields "${spec}")
  list(GET fields 0 name)
  list(GET fields 1 header)
  list(GET fields 2 flags)
  list(GET fields 3 features)
  string(REPLACE "-" "_" id "${name}")
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(target invar_kernels_${id})
  add_library(${target} OBJECT ${isa_sources})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE
    INVAR_ISA=${id} INVAR_ISA_NAME="${name}" INVAR_ISA_HEADER="kernels/cpu/isa/${header}.h")
  # Optimized in every build type: inlining is what keeps weak symbols out. Sanitizers make the optimizer take
  # minutes for one file; without it they see the same accesses.
  if(INVAR_SANITIZE)
    set(level -O0)
  else()
    set(level -O3)
  endif()
  target_compile_options(${target} PRIVATE ${flags} ${level} -Wno-psabi
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
  set(${out_line} "ISA_SET(${id}, \"${name}\", \"${features}\")\n" PARENT_SCOPE)
  set(${out_target} ${target} PARENT_SCOPE)
endfunction()

foreach(spec IN LISTS INVAR_ISA_SETS)
  invar_add_isa_set("${spec}" isa_line isa_target)
  string(APPEND isa_inc_lines "${isa_line}")
  list(APPEND INVAR_OBJECTS $<TARGET_OBJECTS:${isa_target}>)
  list(APPEND isa_object_files $<TARGET_OBJECTS:${isa_target}>)
endforeach()
# file(CONFIGURE) leaves the file alone when nothing changed.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/kernels/isa_list.inc CONTENT "${isa_inc_lines}")
set_property(SOURCE ${dir}/kernel_table.cc APPEND PROPERTY COMPILE_OPTIONS -I${CMAKE_BINARY_DIR}/generated)

# The emulated set: linked into kernels_test only, through an object that registers it (test_sets_test.cc).
find_path(INVAR_SIMDE_DIR simde/x86/avx512.h)
if(INVAR_SIMDE_DIR)
  invar_add_isa_set("${INVAR_EMULATED_SET}" isa_line isa_target)
  target_include_directories(${isa_target} SYSTEM PRIVATE ${INVAR_SIMDE_DIR})
  # The emulation is thousands of small functions; gcc takes minutes to optimize them.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT INVAR_SANITIZE)
    target_compile_options(${isa_target} PRIVATE -O1)
  endif()
  list(APPEND INVAR_TEST_OBJECTS $<TARGET_OBJECTS:${isa_target}>)
  set_property(SOURCE ${dir}/test_sets_test.cc APPEND PROPERTY COMPILE_DEFINITIONS INVAR_HAVE_EMULATED=1)
else()
  message(STATUS "simde not found: the AVX-512 kernels are tested only on CPUs that have AVX-512")
endif()

if(NOT INVAR_SANITIZE)
  add_test(NAME kernels_symbols
    COMMAND ${CMAKE_COMMAND} "-DNM=${CMAKE_NM}" "-DOBJECTS=$<JOIN:${isa_object_files},,>"
            -P ${CMAKE_CURRENT_LIST_DIR}/check_symbols.cmake)
endif()
