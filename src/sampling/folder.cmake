# The row loops once more with hardware FMA (row_math.h).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${dir}/row_math_fma.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
endif()
