#include "format/gguf/metadata_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace aerie::metadata_builder_test {

using ::testing::ElementsAre;

// A file that is nothing but its metadata.
class MadeFile final : public ModelFile {
 public:
  explicit MadeFile(MetadataBuilder builder) : ModelFile("made"), builder_(std::move(builder)) {
    set_contents(builder_.release(), {});
  }
  std::string format() const override { return "made"; }
  int64_t file_bytes() const override { return 0; }

 private:
  Expected<TensorData> read_tensor(const TensorInfo&) const override {
    return Status(StatusCode::kInternal, "there are no tensors");
  }
  MetadataBuilder builder_;
};

TEST(MetadataBuilder, ValuesOfEveryKind) {
  MetadataBuilder builder;
  builder.add_u32("u32", 4294967295u);
  builder.add_i64("i64", -(int64_t{1} << 40));
  builder.add_f32("f32", 0.1f);
  builder.add_bool("bool", true);
  builder.add_string("string", "short");
  builder.add_i32s("array of i32", {1, -1});
  builder.add_f32s("array of f32", {0.5f, -1.0f});
  builder.add_bools("array of bool", {true, false});
  builder.add_strings("array of string", {"a", "", std::string(100, 'b')});
  const MadeFile file(std::move(builder));
  EXPECT_EQ(*file.integer("u32"), 4294967295);
  EXPECT_EQ(*file.integer("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(*file.number("f32"), double{0.1f});
  EXPECT_TRUE(*file.boolean("bool"));
  EXPECT_EQ(*file.string("string"), "short");
  EXPECT_THAT(*file.numbers("array of i32"), ElementsAre(1.0, -1.0));
  EXPECT_THAT(*file.numbers("array of f32"), ElementsAre(0.5, -1.0));
  EXPECT_THAT(*file.strings("array of string"), ElementsAre("a", "", std::string(100, 'b')));
  ASSERT_EQ(file.metadata().size(), 9u);
  for (const auto& [key, value] : file.metadata()) EXPECT_EQ(value.type_name, key);
}

// Short strings lie inside their objects, so that these must not move when more are added or when
// the builder moves.
TEST(MetadataBuilder, StringsStayWhereTheyAre) {
  MetadataBuilder builder;
  for (int i = 0; i < 1000; ++i) builder.add_string(std::to_string(i) + "k", std::to_string(i));
  MetadataBuilder other = std::move(builder);
  other.add_string("last", "z");
  MetadataBuilder third;
  third = std::move(other);
  const auto file = std::make_unique<MadeFile>(std::move(third));
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(*file->string(std::to_string(i) + "k"), std::to_string(i));
  }
  EXPECT_EQ(*file->string("last"), "z");
}

TEST(MetadataBuilder, AddingAgainReplaces) {
  MetadataBuilder builder;
  builder.add_u32("a", 1);
  builder.add_u32("b", 2);
  EXPECT_TRUE(builder.has("a"));
  EXPECT_FALSE(builder.has("c"));
  builder.add_string("a", "new");
  const MadeFile file(std::move(builder));
  ASSERT_EQ(file.metadata().size(), 2u);
  EXPECT_EQ(file.metadata()[0].first, "a");
  EXPECT_EQ(*file.string("a"), "new");
}

}  // namespace aerie::metadata_builder_test
