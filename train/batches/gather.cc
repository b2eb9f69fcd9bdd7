#include "train/batches/gather.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "format/json.h"

namespace aerie::train {
namespace {

// Doubles go as their bits: a figure that is not finite has no JSON.
std::string to_text(const Figures& figures) {
  const auto bits = [](double value) {
    uint64_t all = 0;
    std::memcpy(&all, &value, sizeof(all));
    return all;
  };
  Json json = Json::array({Json::array({"", bits(figures.weight)})});
  for (const auto& [name, sum] : figures.sums) json.push_back(Json::array({name, bits(sum)}));
  return json.dump();
}

Figures from_json(const Json& json) {
  const auto number = [](const Json& pair) {
    const auto all = pair[1].get<uint64_t>();
    double value = 0.0;
    std::memcpy(&value, &all, sizeof(value));
    return value;
  };
  Figures figures;
  figures.weight = number(json[0]);
  for (size_t i = 1; i < json.size(); ++i) {
    figures.add(json[i][0].get<std::string>(), number(json[i]));
  }
  return figures;
}

}  // namespace

Expected<Figures> gather(const Figures& own, Group& group) {
  if (group.world() == 1) return own;
  const std::string text = to_text(own);
  at::Tensor sizes = at::zeros({group.world()}, at::kLong);
  sizes.data_ptr<int64_t>()[group.rank()] = static_cast<int64_t>(text.size());
  AERIE_RETURN_IF_ERROR(group.sum(sizes));
  const int64_t most = sizes.max().item<int64_t>();
  // Each writes its own row, so that sums put the rows together.
  at::Tensor texts = at::zeros({group.world(), most}, at::kByte);
  std::memcpy(texts.data_ptr<uint8_t>() + group.rank() * most, text.data(), text.size());
  AERIE_RETURN_IF_ERROR(group.sum(texts));
  Figures all;
  for (int rank = 0; rank < group.world(); ++rank) {
    const auto* row = reinterpret_cast<const char*>(texts.data_ptr<uint8_t>()) + rank * most;
    const auto size = static_cast<size_t>(sizes.data_ptr<int64_t>()[rank]);
    AERIE_ASSIGN_OR_RETURN(const Json json, parse_json({row, size}, "figures of a process"));
    all.merge(from_json(json));
  }
  return all;
}

std::vector<std::pair<std::string, double>> means(const Figures& figures) {
  std::vector<std::pair<std::string, double>> all;
  if (figures.weight > 0.0) {
    for (const auto& [name, sum] : figures.sums) all.emplace_back(name, sum / figures.weight);
  }
  return all;
}

double mean_of(const Figures& figures, const std::string& name) {
  for (const auto& [own, mean] : means(figures)) {
    if (own == name) return mean;
  }
  return 0.0;
}

}  // namespace aerie::train
