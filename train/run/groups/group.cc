#include "train/run/groups/group.h"

#include <fmt/format.h>

namespace aerie::train {
namespace {

class LoneGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  Status sum(at::Tensor& values) override {
    (void)values;
    return {};
  }
  Status broadcast(at::Tensor& values) override {
    (void)values;
    return {};
  }
};

}  // namespace

Expected<std::unique_ptr<Group>> join_group(const GroupOptions& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--world {} --rank {}: ranks go from 0 to below --world",
                              options.world, options.rank));
  }
  if (options.world == 1) return std::unique_ptr<Group>(std::make_unique<LoneGroup>());
  return join_processes(options);
}

}  // namespace aerie::train
