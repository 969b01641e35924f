#define INVAR_ROW_MATH kRowMathPortable
#define INVAR_ROW_MATH_NAME "portable"
#include "sampling/row_math-inl.h"
