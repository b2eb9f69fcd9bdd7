// locate_dataset NAME FILE|.ENDING...: where locate_dataset() finds them, for cache_test.py.

#include <string>
#include <vector>

#include "base/program.h"
#include "base/standard_streams.h"
#include "hub/locate.h"

int main(int argc, char** argv) {
  return aerie::run_program([&] {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() < 2) {
      aerie::print_message("usage: locate_dataset NAME FILE|.ENDING...\n");
      return 2;
    }
    const auto folder = aerie::locate_dataset(words[0], std::span(words).subspan(1));
    if (!folder.ok()) return aerie::exit_with(folder.status());
    aerie::print_output(*folder + "\n");
    return aerie::exit_with(0);
  });
}
