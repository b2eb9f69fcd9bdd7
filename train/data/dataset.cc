#include "train/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "base/philox.h"
#include "train/data/answer_file.h"

namespace aerie::train {
namespace {

Status check_settings(const Sample& sample, const DataInfo& info, const std::string& path) {
  if (info.served && static_cast<int64_t>(sample.tokens.size()) <= info.context) return {};
  const double temperature = temperature_of(info.settings, sample.prompt, sample.index);
  const uint64_t seed = seed_of(info.settings, sample.prompt);
  if (sample.temperature == temperature && sample.seed == seed &&
      static_cast<int64_t>(sample.tokens.size()) <= info.context) {
    return {};
  }
  return {StatusCode::kInvalidData,
          fmt::format("{}: sample {} was not made with the settings of data.json beside it: it has "
                      "temperature {} and seed {} where {} and {} are right, and {} tokens in a "
                      "context of {}; is the file of another folder?",
                      path, sample.id, sample.temperature, sample.seed, temperature, seed,
                      sample.tokens.size(), info.context)};
}

}  // namespace

Expected<Dataset> read_dataset(const std::string& folder) {
  Dataset dataset;
  AERIE_ASSIGN_OR_RETURN(dataset.info, read_info(folder));
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, answer_files(folder));
  std::map<std::string, const std::string*> file_of;
  for (const std::string& path : paths) {
    AERIE_ASSIGN_OR_RETURN(std::vector<Sample> samples, read_answers(path, dataset.info.vocab));
    for (const Sample& sample : samples) {
      AERIE_RETURN_IF_ERROR(check_settings(sample, dataset.info, path));
      const auto [there, added] = file_of.emplace(sample.id, &path);
      if (!added) {
        return Status(StatusCode::kInvalidData,
                      fmt::format("sample {} is in {} and in {}: remove one of the files, or the "
                                  "line from one of them",
                                  sample.id, *there->second, path));
      }
      dataset.tokens += static_cast<int64_t>(sample.tokens.size());
      dataset.generated += generated_tokens(sample);
    }
    std::move(samples.begin(), samples.end(), std::back_inserter(dataset.samples));
  }
  if (dataset.samples.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  folder + ": there are no samples yet; `aerie train data` makes them");
  }
  std::sort(dataset.samples.begin(), dataset.samples.end(), [](const Sample& a, const Sample& b) {
    return std::tuple(a.prompt, a.index) < std::tuple(b.prompt, b.index);
  });
  return dataset;
}

bool is_held_out(int prompt, double fraction) {
  constexpr PhiloxKey kKey = {0x48656c64, 0x6f757421};
  const PhiloxBlock block = philox4x32({static_cast<uint32_t>(prompt), 0, 0, 0}, kKey);
  return uniform53(block[0], block[1]) < fraction;
}

DatasetSplit split(const Dataset& dataset, double fraction) {
  DatasetSplit out;
  for (size_t i = 0; i < dataset.samples.size(); ++i) {
    const bool held_out = is_held_out(dataset.samples[i].prompt, fraction);
    (held_out ? out.validation : out.training).push_back(i);
  }
  return out;
}

std::vector<int64_t> token_counts(const Dataset& dataset, int vocab) {
  std::vector<int64_t> counts(static_cast<size_t>(vocab), 0);
  for (const Sample& sample : dataset.samples) {
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      if (sample.mask[t] != 0) ++counts[static_cast<size_t>(sample.tokens[t])];
    }
  }
  return counts;
}

}  // namespace aerie::train
