// What programs ask of files and folders, and what the system answers.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

// "PATH: WHAT: REASON". kNotFound if nothing is there, kResourceExhausted where there is no room,
// else kInvalidArgument.
Status system_error(const std::string& path, std::string_view what, int error);

// A call that answers below 0 in a failure, again where a signal interrupted it.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Writes all of the bytes, if need be in parts: 0, or the error that left some out.
int write_all(int fd, std::string_view bytes);

bool is_folder(const std::string& path);
// A link counts whether or not it leads somewhere: opening it then says what is wrong.
bool is_there(const std::string& path);

// Of what is in a folder, sorted; none if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);
// Of what begins and ends so, with the folder before it. kNotFound if that cannot be read.
Expected<std::vector<std::string>> paths_in(const std::string& folder, std::string_view prefix,
                                            std::string_view suffix);

}  // namespace aerie
