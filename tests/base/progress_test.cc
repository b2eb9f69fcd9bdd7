// What those who wait get to see.

#include "base/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/standard_streams.h"

namespace aerie::progress_test {

constexpr int64_t kMiB = 1 << 20;

// What a process of its own writes to a terminal of 80 columns that is its standard error.
std::string on_a_terminal(const std::function<void()>& run) {
  winsize size = {24, 80, 0, 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    run();
    _exit(0);
  }
  std::string seen;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(terminal, buffer.data(), buffer.size())) > 0;) {
    seen.append(buffer.data(), static_cast<size_t>(n));
  }
  close(terminal);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return seen;
}

void work_for(double seconds, Progress& progress) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    progress.add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  progress.add(1);  // behind the end for certain
}

TEST(ProgressLine, TellsRateAndRemainingTime) {
  const ProgressState state{
      "fetching a.gguf", ProgressUnit::kBytes, 250 * kMiB, 1000 * kMiB, 50 * kMiB, 10};
  EXPECT_EQ(
      progress_line(state, 100),
      "fetching a.gguf  [=====               ]  25 %  250 MiB of 1.0 GiB  20.0 MiB/s  0:38 left");
  EXPECT_EQ(progress_line(state, 80),
            "fetching a.gguf   25 %  250 MiB of 1.0 GiB  20.0 MiB/s  0:38 left");
  EXPECT_EQ(progress_line(state, 0),
            "fetching a.gguf   25 %  250 MiB of 1.0 GiB  20.0 MiB/s  0:38 left");
}

TEST(ProgressLine, NeverFillsTheLastColumn) {
  const ProgressState state{
      "fetching a file whose name is so long that no line can hold it, é and all",
      ProgressUnit::kTokens,
      4000,
      4096,
      0,
      2};
  for (int width = 1; width < 200; ++width) {
    EXPECT_LT(progress_line(state, width).size(), static_cast<size_t>(std::max(width, 1))) << width;
  }
  EXPECT_NE(progress_line(state, 80).find("4000 tokens of 4096 tokens"), std::string::npos);
}

TEST(ProgressLine, WithoutATotalThereIsNoShare) {
  EXPECT_EQ(progress_line({"counting", ProgressUnit::kCount, 7, 0, 0, 3}, 80), "counting  7");
}

TEST(ProgressLine, MoreThanAnnouncedIsNoMoreThanAll) {
  EXPECT_EQ(progress_line({"counting", ProgressUnit::kCount, 9, 6, 0, 3}, 0),
            "counting  100 %  9 of 6");
}

TEST(Progress, IsShownAfterASecondAndVanishes) {
  const std::string seen = on_a_terminal([] {
    set_progress_style(ProgressStyle::kLine);
    Progress progress("working", 1000);
    work_for(1.3, progress);
    print_message("a message\n");
  });
  EXPECT_NE(seen.find("working"), std::string::npos) << seen;
  const std::string wiped = "\r\x1b[Ka message";
  EXPECT_NE(seen.find(wiped), std::string::npos) << seen;
  EXPECT_EQ(seen.find("working", seen.find(wiped)), std::string::npos) << seen;
}

TEST(Progress, ALogGetsALineAfterAWhile) {
  const std::string seen = on_a_terminal([] {
    set_progress_style(ProgressStyle::kLog);
    Progress progress("working", 0);
    work_for(5.3, progress);
  });
  EXPECT_TRUE(seen.starts_with("working  ")) << seen;
  EXPECT_TRUE(seen.ends_with("\r\n")) << seen;
  EXPECT_EQ(seen.find('\n'), seen.size() - 1) << seen;
}

TEST(Progress, WhatIsQuickIsNotShown) {
  EXPECT_EQ(on_a_terminal([] {
              set_progress_style(ProgressStyle::kLine);
              Progress progress("working", 10);
              progress.add(1);
            }),
            "");
}

TEST(Progress, IsShownAfterTheTimeThatWasAskedFor) {
  for (const ProgressStyle style : {ProgressStyle::kLine, ProgressStyle::kLog}) {
    for (const char* after : {"0", "1000"}) {
      const std::string seen = on_a_terminal([&] {
        set_progress_style(style);
        if (!set_progress_delay(after).ok()) _exit(1);
        Progress progress("working", 10);
        progress.add(1);
      });
      EXPECT_EQ(seen.find("working") != std::string::npos, after == std::string("0")) << seen;
    }
  }
}

TEST(Progress, TheTimeIsANumber) {
  EXPECT_TRUE(set_progress_delay(nullptr).ok());
  EXPECT_TRUE(set_progress_delay("").ok());
  for (const char* wrong : {"x", "1x", "-1", "nan", " "}) {
    EXPECT_EQ(set_progress_delay(wrong).code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(Progress, NothingIsShownUnlessAskedFor) {
  EXPECT_EQ(on_a_terminal([] {
              Progress progress("working", 1000);
              work_for(1.2, progress);
            }),
            "");
}

TEST(Progress, AFileOrADumbTerminalIsALog) {
  EXPECT_EQ(on_a_terminal([] {
              setenv("TERM", "dumb", 1);
              if (fitting_progress_style() != ProgressStyle::kLog) print_message("wrong\n");
              setenv("TERM", "xterm", 1);
              if (fitting_progress_style() != ProgressStyle::kLine) print_message("wrong\n");
              close(STDERR_FILENO);
              if (fitting_progress_style() != ProgressStyle::kLog) _exit(1);
            }),
            "");
}

}  // namespace aerie::progress_test
