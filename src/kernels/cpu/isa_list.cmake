# The instruction sets compiled into the kernels, best last.
# name | vector header in isa/ | compiler flags | CPU features that must be there (names of kernel_table.cc)
# Feature flags only, never -march: a processor name would bring instructions that nobody checks for.
# "scalar-portable" is the specification; "scalar" is the same source with hardware FMA.
set(INVAR_ISA_SETS
  "scalar-portable|scalar||"
  "scalar|scalar|-mavx2 -mfma -mf16c|avx2 fma f16c"
  "avx2|avx2|-mavx2 -mfma -mf16c|avx2 fma f16c"
  "avx512|avx512|-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c|avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512vnni"
)

# For the tests only: the AVX-512 sources over SIMDe, so that they are checked bit for bit on CPUs without AVX-512.
set(INVAR_EMULATED_SET "avx512-emulated|avx512|-mavx2 -mfma -mf16c -DINVAR_SIMDE=1|avx2 fma f16c")
