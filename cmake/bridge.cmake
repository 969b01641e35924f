# bridge/: the one Rust static library. Cargo runs with the committed lock file; its dependency file tells ninja when.
find_program(CARGO cargo REQUIRED)
set(bridge_target_dir ${CMAKE_SOURCE_DIR}/build/bridge)   # shared by all presets: the crates compile once
if(INVAR_BRIDGE_PROFILE STREQUAL "release")
  set(bridge_lib ${bridge_target_dir}/release/libbridge.a)
else()
  set(bridge_lib ${bridge_target_dir}/${INVAR_BRIDGE_PROFILE}/libbridge.a)
endif()
string(REPLACE ".a" ".d" bridge_dep ${bridge_lib})
add_custom_command(
  OUTPUT ${bridge_lib}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${bridge_target_dir}
          ${CARGO} build --locked --profile ${INVAR_BRIDGE_PROFILE} --manifest-path ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml
  DEPENDS ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml ${CMAKE_SOURCE_DIR}/bridge/Cargo.lock
  DEPFILE ${bridge_dep}
  USES_TERMINAL
  COMMENT "cargo build bridge (${INVAR_BRIDGE_PROFILE})")
add_custom_target(bridge_build DEPENDS ${bridge_lib})
add_library(bridge INTERFACE)
add_dependencies(bridge bridge_build)
target_link_libraries(bridge INTERFACE ${bridge_lib} dl m gcc_s)
target_include_directories(bridge INTERFACE ${CMAKE_SOURCE_DIR})
