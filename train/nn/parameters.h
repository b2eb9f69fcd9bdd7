// What a method trains, by the names under which it is stored.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace aerie::train {

struct Parameter {
  std::string name;         // of the tensor in the checkpoint
  at::Tensor value;         // a leaf that requires a gradient; float
  double rate_scale = 1.0;  // of the learning rate
};

struct FixedTensor {
  std::string name;
  at::Tensor values;
};

// In the order in which they were added, which is that of optimizers and checkpoints.
class Parameters {
 public:
  // Takes `value` as a leaf that requires a gradient. Requires a name that is not there yet.
  at::Tensor add(std::string name, at::Tensor value, double rate_scale = 1.0) {
    value = value.to(at::kFloat).contiguous().set_requires_grad(true);
    list_.push_back({std::move(name), value, rate_scale});
    return value;
  }

  // Adds what is stored with the parameters and not trained, such as which tokens are drafted.
  void add_fixed(std::string name, at::Tensor values) {
    fixed_.push_back({std::move(name), std::move(values)});
  }

  // Adds which tokens are drafted, int64 [draft vocabulary] of the target's ids, as checkpoints
  // have them: "d2t", offsets from the rows' own numbers.
  void add_draft_ids(const at::Tensor& ids) {
    add_fixed("d2t", ids - at::arange(ids.size(0), ids.options()));
  }

  const std::vector<Parameter>& list() const { return list_; }
  const std::vector<FixedTensor>& fixed() const { return fixed_; }

  int64_t count() const {
    int64_t values = 0;
    for (const Parameter& parameter : list_) {
      values += parameter.value.numel();
    }
    return values;
  }

 private:
  std::vector<Parameter> list_;
  std::vector<FixedTensor> fixed_;
};

}  // namespace aerie::train
