// PyTorch's folders, and what becomes of them as safetensors.
#include "format/torch/torch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "format/safetensors/safetensors.h"
#include "format/safetensors/safetensors_folder.h"
#include "tests/format/torch/torch_writer.h"

namespace aerie::torch_folder_test {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr const char* kCorpus = "tests/fuzz/corpus/torch/";

class TorchFolders : public ::testing::Test {
 protected:
  TorchFolders() : path_(testing::TempDir() + "/aerie_torch_" + std::to_string(getpid())) {
    fs::remove_all(path_);
    fs::create_directories(path_ + "/in");
  }
  ~TorchFolders() override { fs::remove_all(path_); }

  std::string in(const std::string& name = "") const { return path_ + "/in/" + name; }
  std::string out(const std::string& name) const { return path_ + "/" + name; }
  void copy(const std::string& from, const std::string& to) const {
    fs::copy_file(kCorpus + from, in(to));
  }
  void write_text(const std::string& name, const std::string& text) const {
    std::ofstream(in(name), std::ios::binary) << text;
  }

  std::string path_;
};

// All tensors of the file are in the safetensors file, and nothing else.
void expect_same(const TorchFile& file, const SafetensorsFile& converted) {
  ASSERT_EQ(converted.tensors().size(), file.tensors().size());
  for (const TorchTensor& tensor : file.tensors()) {
    const SafetensorsTensor* made = converted.find(tensor.name);
    ASSERT_NE(made, nullptr) << tensor.name;
    EXPECT_EQ(made->type, tensor.type);
    EXPECT_EQ(made->shape, tensor.shape);
    std::string values;
    EXPECT_TRUE(tensor
                    .read([&](std::span<const std::byte> part) {
                      values.append(reinterpret_cast<const char*>(part.data()), part.size());
                      return Status();
                    })
                    .ok());
    EXPECT_EQ(values,
              std::string_view(reinterpret_cast<const char*>(made->data.data()), made->data.size()))
        << tensor.name;
  }
}

TEST_F(TorchFolders, EveryFileOfTheCorpusConverts) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kCorpus)) {
    const auto file = TorchFile::open(entry.path().string());
    if (!file.ok()) continue;
    ++count;
    const std::string to = out(entry.path().filename().string() + ".safetensors");
    const auto bytes = convert_torch(entry.path().string(), to);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    const auto converted = SafetensorsFile::open(to);
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    EXPECT_EQ(converted->file_bytes(), *bytes);
    expect_same(*file, *converted);
  }
  EXPECT_GE(count, 10);
}

TEST_F(TorchFolders, AFolderBecomesAFolderWithItsConfiguration) {
  copy("module.pt", "medusa_lm_head.pt");
  copy("nested.pt", "training_args.bin");
  write_text("config.json", R"({"medusa_num_heads": 3})");
  EXPECT_TRUE(is_torch_path(in()));
  const auto bytes = convert_torch(in(), out("made"));
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  const auto converted = SafetensorsFolder::open(out("made"));
  ASSERT_TRUE(converted.ok()) << converted.status().message();
  const auto file = TorchFile::open(in("medusa_lm_head.pt"));
  expect_same(*file, converted->shards()[0]);
  std::ifstream config(out("made/config.json"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(config), {}), R"({"medusa_num_heads": 3})");
  // In place: beside the file itself.
  ASSERT_TRUE(convert_torch(in(), in()).ok());
  EXPECT_TRUE(fs::exists(in("model.safetensors")));
  EXPECT_FALSE(is_torch_path(in())) << "there are safetensors now";
}

TEST_F(TorchFolders, NumbersAndStringsBecomeMetadata) {
  ASSERT_TRUE(convert_torch(std::string(kCorpus) + "nested.pt", out("x.safetensors")).ok());
  const auto file = SafetensorsFile::open(out("x.safetensors"));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->metadata(), ::testing::Contains(::testing::Pair("name", "a head")));
  EXPECT_THAT(file->metadata(), ::testing::Contains(::testing::Pair("format", "pt")));
}

TEST_F(TorchFolders, ShardsBecomeOneFile) {
  copy("module.pt", "pytorch_model-00001-of-00002.bin");
  copy("nested.pt", "pytorch_model-00002-of-00002.bin");
  write_text("pytorch_model.bin.index.json",
             R"({"weight_map": {"fc.weight": "pytorch_model-00001-of-00002.bin",
                                "4": "pytorch_model-00002-of-00002.bin"}})");
  const auto folder = TorchFolder::open(in());
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_EQ(folder->tensors().size(), 16u);
  ASSERT_TRUE(convert_torch(in(), out("made")).ok());
  const auto converted = SafetensorsFolder::open(out("made"));
  ASSERT_TRUE(converted.ok());
  EXPECT_EQ(converted->tensors().size(), 16u);

  // What both say beside their tensors is there once.
  const std::string epoch = test::torch_text(test::pickle_dict({{"epoch", "K\5"}}));
  write_text("pytorch_model-00001-of-00002.bin", epoch);
  ASSERT_TRUE(convert_torch(in(), out("again")).ok());
  const auto again = SafetensorsFolder::open(out("again"));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_THAT(again->shards()[0].metadata(),
              ::testing::Contains(::testing::Pair("epoch", "5")).Times(1));

  copy("module.pt", "module.pt");
  fs::rename(in("module.pt"), in("pytorch_model-00001-of-00002.bin"));
  fs::copy_file(std::string(kCorpus) + "module.pt", in("pytorch_model-00002-of-00002.bin"),
                fs::copy_options::overwrite_existing);
  const Status twice = TorchFolder::open(in()).status();
  EXPECT_EQ(twice.code(), StatusCode::kInvalidData);
  EXPECT_THAT(twice.message(), HasSubstr("is in two files"));
  write_text("pytorch_model.bin.index.json", R"({"weight_map": {"a": "../x.bin"}})");
  EXPECT_EQ(TorchFolder::open(in()).status().code(), StatusCode::kInvalidData);
}

TEST_F(TorchFolders, SaysWhichFileIsMeant) {
  const auto refused = [&](StatusCode code, const std::string& part) {
    const Status status = TorchFolder::open(in()).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  refused(StatusCode::kNotFound, "holds no .bin, .pt or .pth file");
  write_text("optimizer.pt", "x");
  refused(StatusCode::kNotFound, "holds no .bin, .pt or .pth file");
  copy("module.pt", "a.pt");
  copy("module.pt", "b.bin");
  refused(StatusCode::kInvalidArgument, "a.pt, b.bin");
  copy("module.pt", "pytorch_model.bin");
  EXPECT_TRUE(TorchFolder::open(in()).ok());
  EXPECT_EQ(TorchFolder::open(in("none.pt")).status().code(), StatusCode::kNotFound);
}

TEST_F(TorchFolders, RefusalsLeaveNothing) {
  write_text("a.bin", test::torch_text(
                          test::pickle_dict({{"a", test::pickle_global("os", "system") + ")R"}})));
  for (const char* name : {"made", "made.safetensors"}) {
    const auto bytes = convert_torch(in("a.bin"), out(name));
    EXPECT_EQ(bytes.status().code(), StatusCode::kUnsupported) << bytes.status().message();
    EXPECT_THAT(bytes.status().message(), HasSubstr("would run code: it names 'os.system'"));
    EXPECT_FALSE(fs::exists(out(name)));
  }
  copy("module.pt", "good.pt");
  const auto gguf = convert_torch(in("good.pt"), out("x.gguf"));
  EXPECT_EQ(gguf.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(gguf.status().message(), HasSubstr("name a folder"));
  const auto nowhere = convert_torch(in("good.pt"), out("none/made"));
  EXPECT_EQ(nowhere.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TorchFolders, AsAModel) {
  copy("views.pt", "views.pt");
  const auto file = open_torch_model(in("views.pt"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 11u);
  const auto turned = (*file)->read("transposed");
  ASSERT_TRUE(turned.ok()) << turned.status().message();
  EXPECT_EQ(turned->view.shape, (Shape{4, 6, 1, 1}));
  const auto base = (*file)->read("base");
  const auto* from = reinterpret_cast<const float*>(base->view.data);
  const auto* to = reinterpret_cast<const float*>(turned->view.data);
  for (size_t row = 0; row < 6; ++row) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(to[row * 4 + i], from[i * 6 + row]);
  }
}

}  // namespace aerie::torch_folder_test
