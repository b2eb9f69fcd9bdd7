// What `aerie tune` found out about a model on a machine: costs of passes, which the controller
// then need not measure, and what to speculate with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/auto/pass_cost.h"
#include "format/model_file.h"
#include "kernels/backend.h"

namespace aerie {

// Where the figures hold: anything else has other costs.
struct ProfileKey {
  uint64_t model = 0;  // format/fingerprint.h; 0: unknown
  std::string processor;
  kernels::Isa isa = kernels::Isa::kReference;
  int threads = 0;
  kernels::KvType cache_type = kernels::KvType::kF16;
  std::string device = {};  // its make; empty: the processor

  bool operator==(const ProfileKey&) const = default;
};
ProfileKey profile_key(const ModelFile& model, kernels::Isa isa, int threads,
                       kernels::KvType cache_type);
// What differs, for people: "5 threads, now 2"; empty: nothing.
std::string difference(const ProfileKey& profile, const ProfileKey& now);

// What to do with so many sequences at a time.
struct ProfileChoice {
  double temperature = 0.0;
  int batch = 1;
  std::string speculate = "none";  // as `aerie run --speculate` has it
  double speedup = 1.0;            // over plain decoding
  bool measured = false;           // else by the costs of passes and measured acceptance
  std::string why;
  std::vector<std::string> in_vain_on = {};  // tasks on which plain decoding is as fast
  // Another verification rule with which it is faster: the same distribution, other ids for a seed.
  // Said, not used. Empty: none.
  std::string faster_rule = {};
  double faster_speedup = 0.0;
};

struct Profile {
  ProfileKey key;
  std::vector<PassCost::Point> pass_cost;  // as PassCost takes them
  std::vector<ProfileChoice> choices;
};

// The one of the nearest temperature, for at most so many sequences at a time; null: there is none.
const ProfileChoice* choice_for(const Profile& profile, double temperature, int batch);

// Its choices, a sentence for each temperature: which draft is best for how many requests at a
// time, from how many on and on which texts plain decoding is, and which rule would be faster.
std::vector<std::string> in_words(const Profile& profile);

// One JSON object, with a line break at its end.
std::string to_json(const Profile& profile);
// kNotFound for a file that cannot be read; kInvalidData, naming the file and what is wrong, for
// one that holds no profile.
Expected<Profile> read_profile(const std::string& path);

}  // namespace aerie
