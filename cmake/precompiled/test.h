// library.h and the test framework, for tests.
#pragma once

#include "library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
