// A folder of what the target answered and what its layers held then, within a size: the newest
// replies, in the form that `aerie train --data` reads (docs/training.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/learning/known_texts.h"
#include "engine/samples/data_info.h"
#include "engine/samples/feature_file.h"
#include "engine/samples/sample.h"

namespace aerie {

struct LearnedReply {
  std::vector<int32_t> tokens;  // prompt and reply
  int prompt_length = 0;
  FinishReason finish = FinishReason::kNone;  // kNone: it was cut off, which learning does not mind
  double temperature = 0.0;
  uint64_t seed = 0;
  // bfloat16 [rows][layers][hidden] of the positions from first_row on, up to the last but one:
  // what came before was taken from the prefix cache. Empty: nobody kept them.
  int first_row = 0;
  std::vector<uint16_t> taps = {};
};

// Replies are put together to shards, answers-NNNNNN.jsonl and features-NNNNNN.safetensors, each of
// which appears whole or not at all, the answers last: whenever the process is killed, the folder
// can be read, and lacks what had not been flushed. Both are for their owner alone. Beyond the
// bound the oldest shards go. A reply that would take more than an eighth of the bound is kept
// without its taps.
//
// A reply to the same prompt as an earlier one, or to one that goes on from an earlier prompt and
// its reply, as the turns of a chat do, has that one's number: both are held out, or neither.
//
// What a reply took from the prefix cache is that of an earlier one that begins with the same
// tokens, if its shard has not gone.
//
// For one thread; one process at a time writes to a folder.
class LearnStore {
 public:
  static constexpr const char* kLockName = ".aerie-learn.lock";
  static constexpr int64_t kLeastBytes = int64_t{8} << 20;
  static constexpr int64_t kShardBytes = int64_t{16} << 20;  // at most, about
  static constexpr size_t kMostTokens = 4096;                // of a reply; the rest is cut

  // Makes the folder, for its owner alone, if it is not there. `max_bytes`, at least kLeastBytes:
  // of all shards. kInvalidArgument, naming the path, if nothing can be written there or another
  // process writes there already.
  static Expected<LearnStore> open(const std::string& path, int64_t max_bytes);

  ~LearnStore();
  LearnStore(LearnStore&& other) noexcept;
  LearnStore& operator=(LearnStore&&) = delete;

  // Of which model the replies will be, and of which layers `taps`; before the first add().
  // `info.served` is set here. kInvalidArgument if the folder has replies of another model, or
  // features of other layers.
  Status begin(DataInfo info, FeatureKind kind);

  // Writes when a shard is full; errors are flush()'s, and the shard's replies that are in no file
  // are thrown away then; the new one is not. What cannot teach is left out: nothing was generated
  // within kMostTokens.
  Status add(LearnedReply reply);
  // What is not in a file yet. After an error it is kept for the next time, within a shard's size.
  Status flush();

  struct Counts {
    int64_t kept = 0;         // got into a file
    int64_t thrown_away = 0;  // after errors
  };
  const Counts& counts() const { return counts_; }

  const std::string& path() const { return path_; }

 private:
  // Of files, or under way.
  struct Shard {
    int64_t number = 0;
    int64_t bytes = 0;
  };
  struct Entry {
    Sample sample;
    std::vector<uint16_t> taps;  // of all tokens; empty: not known
  };
  // Of a prompt and what goes on from it.
  struct Place {
    int number = 0;
    int index = 0;
  };

  LearnStore(std::string path, int64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}
  std::string answers_path(int64_t number) const;
  std::string features_path(int64_t number) const;
  Status lock();
  Status scan();
  Status check_features();
  Status read_numbers();
  Place place_of(const LearnedReply& reply);
  std::vector<uint16_t> first_taps(std::span<const int32_t> tokens) const;
  std::vector<uint16_t> all_taps(const LearnedReply& reply) const;
  Status add(Entry entry);
  Status make_room(int64_t bytes);
  Status write_shard();
  void begin_shard();

  std::string path_;
  int64_t max_bytes_;
  int lock_ = -1;
  DataInfo info_;
  FeatureKind kind_;
  std::vector<Shard> older_;    // than the one under way, the oldest first
  int64_t number_ = 1;          // of the one under way
  std::vector<Entry> entries_;  // of it
  int64_t entry_bytes_ = 0;
  size_t written_ = 0;  // so many of the entries are in the files
  KnownTexts known_;    // of all shards since begin()
  Counts counts_;
  int next_prompt_ = 0;
  std::unordered_map<uint64_t, int> prompts_;  // [hash of a prompt] its number
  std::unordered_map<uint64_t, int> texts_;    // [hash of prompt and reply]
  std::unordered_map<int, int> samples_of_;    // [number]
};

}  // namespace aerie
