#include "cli/interrupt.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <future>

#include "base/temporary_files.h"

namespace invar {
namespace {

TEST(Interrupt, calls_the_handler_on_a_thread_of_its_own) {
  Interrupt interrupt;
  EXPECT_FALSE(interrupt.seen());
  std::promise<std::thread::id> called;
  interrupt.on_signal([&] { called.set_value(std::this_thread::get_id()); });
  ASSERT_EQ(::kill(::getpid(), SIGINT), 0);
  auto future = called.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_NE(future.get(), std::this_thread::get_id());
  EXPECT_TRUE(interrupt.seen());
}

TEST(InterruptDeathTest, without_a_handler_the_process_ends_with_130) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Interrupt interrupt;
        ::kill(::getpid(), SIGTERM);
        ::pause();
      },
      testing::ExitedWithCode(130), "");
}

TEST(InterruptDeathTest, unfinished_files_are_removed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string path = testing::TempDir() + "interrupt_test.tmp";
  EXPECT_EXIT(
      {
        Interrupt interrupt;
        if (open_temporary(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0) ::_exit(1);
        ::kill(::getpid(), SIGTERM);
        ::pause();
      },
      testing::ExitedWithCode(130), "");
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  ::unlink(path.c_str());
}

TEST(InterruptDeathTest, a_terminal_that_goes_away_takes_unfinished_files_along) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string path = testing::TempDir() + "interrupt_test_hangup.tmp";
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_DFL);  // whatever this test was started with
        Interrupt interrupt;
        interrupt.on_ctrl_c([] { ::_exit(1); });
        if (open_temporary(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) < 0) ::_exit(1);
        ::kill(::getpid(), SIGHUP);
        ::pause();
      },
      testing::ExitedWithCode(130), "");
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  ::unlink(path.c_str());
}

TEST(InterruptDeathTest, under_nohup_a_hangup_is_no_signal) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        Interrupt interrupt;
        interrupt.on_signal([] { ::_exit(3); });
        sigset_t blocked;
        pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        if (sigismember(&blocked, SIGHUP) != 0) ::_exit(2);
        ::kill(::getpid(), SIGHUP);
        ::kill(::getpid(), SIGTERM);
        ::pause();
      },
      testing::ExitedWithCode(3), "");
}

TEST(InterruptDeathTest, a_second_signal_ends_the_process) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Interrupt interrupt;
        interrupt.on_signal([] { ::kill(::getpid(), SIGINT); });
        ::kill(::getpid(), SIGINT);
        ::pause();
      },
      testing::ExitedWithCode(130), "");
}

TEST(Interrupt, after_rearm_the_next_signal_is_a_first_one_again) {
  Interrupt interrupt;
  for (int i = 0; i < 3; ++i) {
    std::promise<void> called;
    interrupt.on_ctrl_c([&] { called.set_value(); });
    ASSERT_EQ(::kill(::getpid(), SIGINT), 0);
    ASSERT_EQ(called.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    interrupt.on_signal(nullptr);
    EXPECT_TRUE(interrupt.seen());
    interrupt.rearm();
    EXPECT_FALSE(interrupt.seen());
  }
}

TEST(InterruptDeathTest, a_handler_of_ctrl_c_does_not_keep_sigterm_away) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Interrupt interrupt;
        interrupt.on_ctrl_c([] { ::_exit(1); });
        ::kill(::getpid(), SIGTERM);
        ::pause();
      },
      testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace invar
