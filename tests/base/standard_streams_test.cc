// What a program does with standard descriptors that are closed or full. Each case runs in a
// process of its own.

#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

namespace aerie::standard_streams_test {

// What the process says in the end, and how it ends.
struct Outcome {
  int status = 0;
  std::string said;
};

Outcome apart(const std::function<std::string()>& run) {
  std::array<int, 2> pipe_ends = {};
  EXPECT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int to = fcntl(pipe_ends[1], F_DUPFD_CLOEXEC, 10);
    const std::string said = run();
    _exit(write(to, said.data(), said.size()) < 0 ? 1 : 0);
  }
  close(pipe_ends[1]);
  Outcome outcome;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(pipe_ends[0], buffer.data(), buffer.size())) > 0;) {
    outcome.said.append(buffer.data(), static_cast<size_t>(n));
  }
  close(pipe_ends[0]);
  EXPECT_EQ(waitpid(child, &outcome.status, 0), child);
  return outcome;
}

std::string said_of_output() {
  print_output("text");
  print_output("more");
  return output_status().message();
}

TEST(StandardStreams, ClosedOnesStayTaken) {
  const Outcome outcome = apart([] {
    for (int fd = 0; fd < 3; ++fd) close(fd);
    claim_standard_descriptors();
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char byte = 0;
    const bool reads = read(0, &byte, 1) >= 0;
    print_message("lost\n");
    return std::to_string(next > 2) + std::to_string(reads) + said_of_output();
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "10standard output: cannot write: Bad file descriptor");
}

TEST(StandardStreams, OpenOnesStayAsTheyAre) {
  const Outcome outcome = apart([] {
    const int device = open("/dev/null", O_WRONLY);
    dup2(device, 1);
    claim_standard_descriptors();
    return said_of_output();
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "");
}

TEST(StandardStreams, AFullDeviceIsAnError) {
  const Outcome outcome = apart([] {
    const int device = open("/dev/full", O_WRONLY);
    dup2(device, 1);
    dup2(device, 2);
    claim_standard_descriptors();
    print_message("{}\n", "lost");
    return said_of_output();
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "standard output: cannot write: No space left on device");
}

TEST(StandardStreams, AReaderThatGoesAwayIsAnError) {
  const Outcome outcome = apart([] {
    std::array<int, 2> ends = {};
    if (pipe(ends.data()) != 0) return std::string("no pipe");
    dup2(ends[1], 1);
    close(ends[0]);
    claim_standard_descriptors();
    return said_of_output();
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "standard output: cannot write: Broken pipe");
}

TEST(StandardStreams, ALargestSizeIsAnError) {
  const std::string path = testing::TempDir() + "aerie_streams_" + std::to_string(getpid());
  const Outcome outcome = apart([&] {
    dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    const rlimit limit = {6, 6};
    setrlimit(RLIMIT_FSIZE, &limit);
    claim_standard_descriptors();
    return said_of_output();
  });
  unlink(path.c_str());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.said, "standard output: cannot write: File too large");
}

}  // namespace aerie::standard_streams_test
