// Memory stays within a small multiple of a pickle, whatever it holds. A program of its own,
// because the meter replaces operator new.
#include <gtest/gtest.h>

#include "format/torch/pickle.h"
#include "format/torch/torch_file.h"
#include "tests/format/memory_meter.h"
#include "tests/format/torch/torch_writer.h"

namespace aerie::pickle_memory_test {

using namespace std::string_literals;

constexpr size_t kFactor = 100;  // as format/torch/pickle.h says
constexpr size_t kSlack = 16384;

std::string repeated(const std::string& element, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += element;
  return text;
}

TEST(PickleMemory, IsBoundedByTheBytes) {
  for (const std::string& element :
       {"]"s, ")"s, "}"s, "N"s, "]\x94"s, "K\1\x85"s, "\x85"s, "2"s, "("s, "\x94"s, "h\0"s, "]Na"s,
        "}NNs"s, "(t"s, "(l"s, "U\0"s, "Q"s, "ccollections\nOrderedDict\n)R"s}) {
    const auto bytes = test::bytes_of_text("N\x94"s + repeated(element, 300'000) + ".");
    test::reset_memory_use();
    // Most leave values on the stack, which is refused at the end.
    (void)Pickle::parse(bytes, "x");
    EXPECT_LE(test::memory_use().peak, bytes.size() * kFactor + kSlack) << element;
  }
}

// A list that holds one list twice, which holds another twice, and so on: 2^n paths.
TEST(PickleMemory, SharedContainersAreNotWalkedOften) {
  std::string pickle = "\x80\x02(]q\0"s;
  for (char i = 1; i < 30; ++i) {
    const std::string last = {'h', static_cast<char>(i - 1)};
    pickle.append("](").append(last).append(last).append("eq").push_back(i);
  }
  pickle += "1h\x1D.";  // the last one alone
  const auto bytes = test::bytes_of_text(test::torch_text(pickle));
  test::reset_memory_use();
  const auto file = TorchFile::parse(bytes, "x");
  EXPECT_EQ(file.status().code(), StatusCode::kUnsupported) << file.status().message();
  EXPECT_EQ(file.status().message(), "x: its containers share each other");
  EXPECT_LE(test::memory_use().peak, bytes.size() * kFactor + kSlack);
}

}  // namespace aerie::pickle_memory_test
