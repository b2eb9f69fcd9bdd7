#include "base/standard_streams.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"

namespace aerie {
namespace {

int output_error = 0;

}  // namespace

void claim_standard_descriptors() {
  // Opened the other way round, each refuses what it is for; messages may be lost.
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free descriptor: this one.
    [[maybe_unused]] const int opened = open("/dev/null", kModes[fd]);
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

bool print_output(std::string_view text) {
  clear_progress_line();
  if (output_error == 0) output_error = write_all(STDOUT_FILENO, text);
  return output_error == 0;
}

Status output_status() {
  if (output_error == 0) return {};
  return resource_exhausted("standard output: cannot write: {}",
                            std::generic_category().message(output_error));
}

void print_message(std::string_view text) {
  clear_progress_line();
  write_all(STDERR_FILENO, text);
}

}  // namespace aerie
