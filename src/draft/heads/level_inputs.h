// What a device gives the rows of a level that follows a pass without the host (HeadPass::levels).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status.h"
#include "draft/heads/head_machine.h"
#include "kernels/device/device.h"
#include "model/device/device_memory.h"
#include "tensor/dtype.h"

namespace aerie {

// The nearest bfloat16: what a table of embeddings in a device's memory holds.
inline void round_embedding(float* embedding, int64_t width) {
  std::transform(embedding, embedding + width, embedding,
                 [](float x) { return bf16_to_f32(f32_to_bf16(x)); });
}

class LevelInputs {
 public:
  // Device memory of allocate().
  static int64_t bytes(const HeadSizes& sizes) {
    const int64_t rows = device::kFewRows;
    return int64_t{sizes.vocab} * sizes.embedded * 2 + rows * (sizes.handed + sizes.embedded) * 4;
  }

  // The embedding of what each logit stands for, as round_embedding() has it, and room for the rows
  // of a level. Waits for the device. kResourceExhausted without memory.
  Status allocate(device::Device& device, const HeadSizes& sizes, const EmbedLogit& embed) {
    constexpr const char* kWhat = "embeddings of drafted tokens";
    device_ = &device;
    sizes_ = sizes;
    const auto width = static_cast<size_t>(sizes.embedded);
    const auto vocab = static_cast<size_t>(sizes.vocab);
    const size_t inputs = device::kFewRows * (static_cast<size_t>(sizes.handed) + width);
    AERIE_ASSIGN_OR_RETURN(inputs_, DeviceMemory::allocate(device, inputs * 4, kWhat));
    std::vector<float> row(width);
    const auto fill = [&](size_t logit, void* to) {
      embed(static_cast<int>(logit), row.data());
      std::ranges::transform(row, static_cast<uint16_t*>(to), f32_to_bf16);
    };
    AERIE_ASSIGN_OR_RETURN(table_, DeviceMemory::filled(device, vocab, width * 2, kWhat, fill));
    return {};
  }
  bool is_there() const { return table_.size() > 0; }

  // What the operations of a level read.
  HeadMachine::Inputs inputs() const {
    const int64_t width = sizes_.handed + sizes_.embedded;
    const HeadRows all = {inputs_.as<float>(), width, width};
    return {all.columns(0, sizes_.handed), all.columns(sizes_.handed, sizes_.embedded)};
  }
  // Puts it on the stream, of rows behind those that gave `found`, with what they hand on
  // `found_width` floats on.
  void make(const int32_t* rows, int most_rows, const int32_t* behind, const float* found,
            int64_t found_width) const {
    device::NextRows args;
    args.rows = rows;
    args.most_rows = most_rows;
    args.behind = behind;
    args.found = found;
    args.found_stride = found_width + sizes_.handed;
    args.handed = found + found_width;
    args.handed_width = static_cast<int>(sizes_.handed);
    args.table = table_.as<uint16_t>();
    args.tokens = sizes_.vocab;
    args.width = static_cast<int>(sizes_.embedded);
    args.out = inputs_.as<float>();
    args.out_stride = sizes_.handed + sizes_.embedded;
    device_->next_rows(args);
  }

 private:
  device::Device* device_ = nullptr;
  HeadSizes sizes_;
  DeviceMemory table_;   // bfloat16 [vocab][embedded]
  DeviceMemory inputs_;  // [kFewRows][handed, embedded]
};

}  // namespace aerie
