# invar_precompile(TARGET HEADER [OPTION ...]): the sources of TARGET begin with cmake/precompiled/HEADER.h, compiled once for
# all targets with the same options, those that TARGET has beside the ones of every target. Does nothing for gcc, so
# that one compiler misses the includes that a source forgot.
#
# CMake has a command for this, target_precompile_headers, but its result holds the path of the build folder, and then ccache
# finds nothing that another clone has compiled. Here the header's path is the same in each: that of the working directory,
# which for every command of ninja is the build folder. No ccache for the header itself: it would write the path in full.
function(invar_precompile target header)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang OR NOT CMAKE_GENERATOR STREQUAL Ninja)
    return()
  endif()
  string(MAKE_C_IDENTIFIER "${header}${ARGN}" name)
  set(result precompiled/${name}.pch)
  if(NOT TARGET precompiled_${name})
    foreach(file IN ITEMS library test)
      configure_file(${CMAKE_SOURCE_DIR}/cmake/precompiled/${file}.h ${CMAKE_BINARY_DIR}/precompiled/${file}.h COPYONLY)
    endforeach()
    set(source /proc/self/cwd/precompiled/${header}.h)
    set_source_files_properties(${source} PROPERTIES LANGUAGE CXX GENERATED TRUE)
    add_library(precompiled_object_${name} OBJECT ${source})
    set_target_properties(precompiled_object_${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
    target_compile_options(precompiled_object_${name} PRIVATE ${ARGN} "SHELL:-x c++-header" -fpch-instantiate-templates
                           "SHELL:-Xclang -fno-pch-timestamp")
    target_link_libraries(precompiled_object_${name} PRIVATE fmt::fmt Boost::json GTest::gmock Threads::Threads)
    # ccache looks at the contents of a precompiled header only under this suffix.
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/${result} DEPENDS $<TARGET_OBJECTS:precompiled_object_${name}>
      COMMAND ${CMAKE_COMMAND} -E create_hardlink $<TARGET_OBJECTS:precompiled_object_${name}> ${CMAKE_BINARY_DIR}/${result}
      COMMENT "precompiled header ${name}")
    add_custom_target(precompiled_${name} DEPENDS ${CMAKE_BINARY_DIR}/${result})
  endif()
  add_dependencies(${target} precompiled_${name})
  target_compile_options(${target} PRIVATE "SHELL:-Xclang -include-pch -Xclang ${result}")
endfunction()
