#include "text/bridge_call.h"

#include <gtest/gtest.h>

namespace invar::text {
namespace {

TEST(BridgeCall, a_panic_is_a_status_and_prints_nothing) {
  testing::internal::CaptureStderr();
  const Status status = bridge_status(iv_test_panic());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_EQ(status.message(), "bridge: deliberate");
}

TEST(BridgeCall, success_is_ok) {
  EXPECT_TRUE(bridge_status(0).ok());
}

}  // namespace
}  // namespace invar::text
