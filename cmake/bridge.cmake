# bridge/: the one Rust static library. Cargo runs with the committed lock file; its dependency file tells ninja when.

# The first cargo that is new enough: Debian's plain one is not, its cargo-web is, rustup's is outside the system paths.
set(bridge_cargo_minimum 1.87)
foreach(dir IN ITEMS "" $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin)
  if(INVAR_CARGO)
    break()
  endif()
  if(dir STREQUAL "")
    find_program(bridge_candidate cargo NO_CACHE)
  else()
    find_program(bridge_candidate cargo PATHS ${dir} NO_DEFAULT_PATH NO_CACHE)
  endif()
  if(bridge_candidate)
    execute_process(COMMAND ${bridge_candidate} --version OUTPUT_VARIABLE bridge_version ERROR_QUIET)
    string(REGEX MATCH "[0-9]+\\.[0-9]+" bridge_version "${bridge_version}")
    if(bridge_version VERSION_GREATER_EQUAL bridge_cargo_minimum)
      set(INVAR_CARGO ${bridge_candidate} CACHE FILEPATH "cargo ${bridge_cargo_minimum} or newer")
    endif()
  endif()
  unset(bridge_candidate)
endforeach()
if(NOT INVAR_CARGO)
  message(FATAL_ERROR "no cargo >= ${bridge_cargo_minimum} on PATH or in ~/.cargo/bin; "
                      "on Debian 12: apt-get install rustc-web cargo-web")
endif()

set(bridge_target_dir ${CMAKE_SOURCE_DIR}/build/bridge)   # shared by all presets: the crates compile once
set(bridge_flags "")
set(bridge_triple "")
set(bridge_options "")
if(INVAR_FUZZ)
  # libFuzzer finds its way through the crates only where they count what runs. With a named target, cargo leaves the
  # programs that it runs while building without these flags.
  set(bridge_target_dir ${CMAKE_BINARY_DIR}/bridge)
  set(bridge_triple x86_64-unknown-linux-gnu/)
  set(bridge_options --target x86_64-unknown-linux-gnu)
  set(bridge_flags RUSTFLAGS=-Cpasses=sancov-module)
  foreach(option IN ITEMS level=4 inline-8bit-counters pc-table trace-compares)
    string(APPEND bridge_flags " -Cllvm-args=-sanitizer-coverage-${option}")
  endforeach()
  string(APPEND bridge_flags " -Ccodegen-units=1 -Coverflow-checks")
endif()
set(bridge_lib ${bridge_target_dir}/${bridge_triple}${INVAR_BRIDGE_PROFILE}/libbridge.a)
string(REGEX REPLACE "\\.a$" ".d" bridge_dep ${bridge_lib})
add_custom_command(
  OUTPUT ${bridge_lib}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${bridge_target_dir} ${bridge_flags}
          ${CMAKE_SOURCE_DIR}/cmake/cargo_build ${bridge_target_dir}/cargo.log
          ${INVAR_CARGO} build --locked --profile ${INVAR_BRIDGE_PROFILE} ${bridge_options}
          --manifest-path ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml
  # Cargo leaves a library that is up to date alone; ninja then wants to see a new time.
  COMMAND ${CMAKE_COMMAND} -E touch ${bridge_lib}
  DEPENDS ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml ${CMAKE_SOURCE_DIR}/bridge/Cargo.lock
  DEPFILE ${bridge_dep}
  COMMENT "cargo build bridge (${INVAR_BRIDGE_PROFILE}): minutes the first time")
add_custom_target(bridge_build DEPENDS ${bridge_lib})
# No add_dependencies: the sources of every folder above would wait for the crates. The file itself is an input of each
# link, and ninja knows how it is made.
add_library(bridge INTERFACE)
target_link_libraries(bridge INTERFACE ${bridge_lib} dl m gcc_s)
target_include_directories(bridge INTERFACE ${CMAKE_SOURCE_DIR})
