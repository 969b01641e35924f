# The same definitions once more with hardware FMA, for the test that compares the two forms.
set_source_files_properties(${dir}/exact_math_fma_test.cc PROPERTIES COMPILE_OPTIONS "-mfma")
set(INVAR_TEST_PRECOMPILE OFF)
