#include "base/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/flag_values.h"

namespace aerie::program_test {

// In a process of its own, which ends with what the program would end with.
[[noreturn]] void end_with(const std::function<int()>& body) {
  _exit(run_program(body));
}

TEST(ProgramDeathTest, SaysWhatItDidNotCatch) {
  EXPECT_EXIT(end_with([] { return 7; }), testing::ExitedWithCode(7), "^$");
  EXPECT_EXIT(end_with([]() -> int { throw std::bad_alloc(); }), testing::ExitedWithCode(1),
              "^error: there is not enough memory");
  EXPECT_EXIT(end_with([]() -> int {
                throw std::system_error(EAGAIN, std::generic_category(), "no thread");
              }),
              testing::ExitedWithCode(1), "^error: .*no thread: Resource temporarily unavailable");
  EXPECT_EXIT(end_with([]() -> int { throw std::runtime_error("it broke"); }),
              testing::ExitedWithCode(1), "^error: it broke");
}

TEST(ProgramDeathTest, ThreadsEndItLikewise) {
  const auto in_thread = [](const std::function<void()>& body) {
    end_with([&] {
      std::thread(body).join();
      return 0;
    });
  };
  EXPECT_EXIT(in_thread([] { throw std::bad_alloc(); }), testing::ExitedWithCode(1),
              "error: there is not enough memory");
  EXPECT_EXIT(
      in_thread([] { throw std::system_error(EAGAIN, std::generic_category(), "no thread"); }),
      testing::ExitedWithCode(1), "error: .*no thread");
  EXPECT_EXIT(in_thread([] { throw std::runtime_error("it broke"); }),
              testing::KilledBySignal(SIGABRT), "error: it broke");
}

// 0: as it should be.
int descriptors_taken() {
  const int file = open("/dev/zero", O_RDONLY);
  if (file <= STDERR_FILENO) return 10 + file;
  char byte = 'x';
  if (read(STDIN_FILENO, &byte, 1) > 0) return 2;     // there is nothing
  if (write(STDOUT_FILENO, &byte, 1) >= 0) return 3;  // results are not lost unnoticed
  if (write(STDERR_FILENO, &byte, 1) != 1) return 4;  // messages may be
  return 0;
}

TEST(ProgramDeathTest, ClosedDescriptorsAreNotGivenToFiles) {
  EXPECT_EXIT(
      {
        for (int fd = 0; fd < 3; ++fd) close(fd);
        end_with(descriptors_taken);
      },
      testing::ExitedWithCode(0), "");
}

TEST(FlagValues, Seeds) {
  for (const char* good : {"0", "1", "18446744073709551615", "007"}) {
    EXPECT_EQ(seed_fault(good), "");
  }
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "18446744073709551616",
                          "seed", "99999999999999999999999"}) {
    EXPECT_NE(seed_fault(bad).find(std::string("'") + bad + "'"), std::string::npos) << bad;
  }
}

TEST(FlagValues, Nan) {
  for (const char* good : {"0", "-1.5", "1e9", "inf", "-inf"}) EXPECT_EQ(nan_fault(good), "");
  for (const char* bad : {"nan", "NaN", "-nan", "nan(1)"}) {
    EXPECT_NE(nan_fault(bad).find(std::string("'") + bad + "'"), std::string::npos) << bad;
  }
}

}  // namespace aerie::program_test
