#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error_text.h"
#include "base/inbox.h"
#include "base/log.h"

namespace invar {
namespace {

Result<int> half_of(int x) {
  if (x % 2 != 0) return invalid_argument("odd");
  return x / 2;
}
Result<int> quarter_of(int x) {
  ASSIGN_OR_RETURN(const int half, half_of(x));
  ASSIGN_OR_RETURN(const int quarter, half_of(half));
  return quarter;
}
Status check_quarter(int x) {
  RETURN_IF_ERROR(quarter_of(x).status());
  return {};
}

TEST(Status, ErrorsTravelThroughTheMacros) {
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_EQ(quarter_of(6).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(check_quarter(8).ok());
  EXPECT_FALSE(check_quarter(2).ok());
}

TEST(Status, ContextGoesInFront) {
  EXPECT_EQ(not_found("gone").with_context("model.gguf").message(), "model.gguf: gone");
  EXPECT_TRUE(Status().with_context("x").ok());
}

TEST(Status, ResultHoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> value = std::move(*std::move(result));
  EXPECT_EQ(*value, 5);
}

TEST(StatusDeathTest, ValueOfAnErrorIsAProgrammerError) {
  const Result<int> error = half_of(1);
  EXPECT_DEATH(error.value(), "check failed");
}

TEST(Inbox, DrainTakesAllInOrder) {
  Inbox<int> inbox;
  EXPECT_TRUE(inbox.drain().empty());
  inbox.push(1);
  inbox.push(2);
  EXPECT_EQ(inbox.drain(), (std::vector<int>{1, 2}));
  EXPECT_TRUE(inbox.drain().empty());
}

TEST(Log, LevelDecidesWhatIsWritten) {
  set_log_level(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  log_info("hidden {}", 1);
  log_warning("shown {}", 2);
  const std::string text = ::testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kInfo);
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_NE(text.find("shown 2"), std::string::npos);
}

TEST(ErrorText, a_path_and_a_remedy_stand_once) {
  EXPECT_EQ(located(corrupt("two tensors"), "f.packed").message(), "f.packed: two tensors");
  EXPECT_EQ(located(corrupt("f.packed: two tensors"), "f.packed").message(), "f.packed: two tensors");
  EXPECT_EQ(with_remedy(corrupt("x is missing"), "fetch it").message(), "x is missing; fetch it");
  EXPECT_EQ(with_remedy(corrupt("x is missing; add it"), "fetch it").message(), "x is missing; add it");
  EXPECT_EQ(with_remedy(internal_error("x"), "fetch it").message(), "x");
}

}  // namespace
}  // namespace invar
