#define INVAR_ROW_MATH kRowMathFma
#define INVAR_ROW_MATH_NAME "fma"
#include "sampling/row_math-inl.h"
