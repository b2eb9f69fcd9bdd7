#include "base/program.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "base/standard_streams.h"

namespace aerie {
namespace {

// Without the heap, and without what throws where nothing can be written.
void say(const char* what, const char* more) {
  std::array<char, 512> line = {};
  const int size =
      std::snprintf(line.data(), line.size(), "error: %s%s%s\n", what, *more ? ": " : "", more);
  if (size <= 0) return;
  const size_t kept = std::min(static_cast<size_t>(size), line.size() - 1);
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line.data(), kept);
}

// Whether it is of the machine's limits, and not of this program.
bool tell(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    say("there is not enough memory: take a smaller model, context or cache, or raise the limit",
        "");
  } catch (const std::system_error& failure) {
    say("the system refused what the program needs", failure.what());
  } catch (const std::exception& failure) {
    say(failure.what(), "");
    return false;
  } catch (...) {
    say("something unknown went wrong", "");
    return false;
  }
  return true;
}

[[noreturn]] void on_terminate() {
  const std::exception_ptr error = std::current_exception();
  if (error && tell(error)) _exit(1);
  std::abort();
}

}  // namespace

int run_program(const std::function<int()>& body) {
  claim_standard_descriptors();
  std::set_terminate(on_terminate);
  try {
    return body();
  } catch (...) {
    tell(std::current_exception());
    return 1;
  }
}

int exit_with(const Expected<int>& outcome) {
  const Status status = outcome.ok() ? output_status() : outcome.status();
  if (status.ok()) return *outcome;
  print_message("error: {}\n", status.message());
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace aerie
