// A model's file with something changed.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/model_file.h"

namespace aerie {

// The floats of a tensor, and how many there are in each of its outermost parts (experts, heads).
using Change = std::function<void(std::span<float> values, size_t part)>;

// The other file must outlive it.
class ChangedFile final : public ModelFile {
 public:
  explicit ChangedFile(const ModelFile& file) : ModelFile("changed"), file_(file) {}

  ChangedFile& without_key(const std::string& key) {
    keys_[key] = std::nullopt;
    return *this;
  }
  ChangedFile& with_key(const std::string& key, MetadataValue value) {
    keys_[key] = std::move(value);
    return *this;
  }
  ChangedFile& without_tensor(const std::string& name) {
    left_out_.push_back(name);
    return *this;
  }
  // Of floats [k, n, stack].
  ChangedFile& with_tensor(const std::string& name, int64_t k, std::vector<float> values,
                           int64_t stack = 1) {
    added_[name] = {k, std::move(values)};
    stacks_[name] = stack;
    return *this;
  }
  // Of all layers: `part` is the end of the name.
  ChangedFile& changed(const std::string& part, Change change) {
    changes_.emplace_back(part, std::move(change));
    return *this;
  }
  ChangedFile& swapped(const std::string& one, const std::string& other) {
    swapped_ = {one, other};
    return *this;
  }
  const ChangedFile& done() {
    Metadata metadata;
    for (const auto& [key, value] : file_.metadata()) {
      if (!keys_.contains(std::string(key))) metadata.emplace_back(key, value);
    }
    for (const auto& [key, value] : keys_) {
      if (value) metadata.emplace_back(key, *value);
    }
    std::vector<TensorInfo> tensors;
    for (const TensorInfo& tensor : file_.tensors()) {
      const bool is_left_out = std::ranges::find(left_out_, tensor.name) != left_out_.end();
      if (!is_left_out) tensors.push_back(tensor);
    }
    for (const auto& [name, tensor] : added_) {
      TensorInfo& info = tensors.emplace_back();
      info.name = name;
      const int64_t stack = stacks_.at(name);
      info.shape = {tensor.first, std::ssize(tensor.second) / tensor.first / stack, stack, 1};
      set_type(info, DType::kF32);
    }
    set_contents(std::move(metadata), std::move(tensors));
    return *this;
  }

  std::string format() const override { return "test"; }
  int64_t file_bytes() const override { return 0; }

 private:
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    std::string name(tensor.name);
    if (const auto added = added_.find(name); added != added_.end()) {
      const std::vector<float>& values = added->second.second;
      return TensorData{{DType::kF32, Device::kCpu, tensor.shape,
                         reinterpret_cast<const std::byte*>(values.data())},
                        {}};
    }
    for (const auto& [from, to] : {swapped_, std::pair(swapped_.second, swapped_.first)}) {
      if (from.empty() || !name.ends_with(from)) continue;
      name.replace(name.size() - from.size(), from.size(), to);
      break;
    }
    AERIE_ASSIGN_OR_RETURN(TensorData data, file_.read(name));
    for (const auto& [part, change] : changes_) {
      if (!tensor.name.ends_with(part)) continue;
      TensorData copy;
      AERIE_ASSIGN_OR_RETURN(copy.owned, Buffer::allocate(static_cast<size_t>(data.view.bytes())));
      std::memcpy(copy.owned.data(), data.view.data, copy.owned.size());
      copy.view = data.view;
      copy.view.data = copy.owned.data();
      const Shape& shape = tensor.shape;
      const int64_t inner = shape[2] > 1 ? shape[0] * shape[1] : shape[1] > 1 ? shape[0] : 1;
      change(copy.owned.as<float>(), static_cast<size_t>(inner));
      return copy;
    }
    return data;
  }

  const ModelFile& file_;
  std::map<std::string, std::optional<MetadataValue>> keys_;
  std::vector<std::string> left_out_;
  std::map<std::string, std::pair<int64_t, std::vector<float>>> added_;
  std::map<std::string, int64_t> stacks_;  // of added_
  std::vector<std::pair<std::string, Change>> changes_;
  std::pair<std::string, std::string> swapped_;
};

}  // namespace aerie
