#include "engine/learning/learn_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "format/input_file.h"
#include "format/output_file.h"
#include "format/safetensors/safetensors_write.h"

namespace aerie {
namespace {

constexpr unsigned kOwnerAlone = 0600;
constexpr const char* kAnswers = "answers-";
constexpr const char* kAnswersEnd = ".jsonl";
constexpr const char* kFeatures = "features-";
constexpr const char* kFeaturesEnd = ".safetensors";
constexpr int kShardsWithinBound = 8;
constexpr size_t kMostTexts = size_t{1} << 16;  // that later prompts are compared with

// The number between; none for a name that this store does not give.
std::optional<int64_t> number_in(std::string_view name, std::string_view begin,
                                 std::string_view end) {
  if (!name.starts_with(begin) || !name.ends_with(end)) return std::nullopt;
  name.remove_prefix(begin.size());
  if (name.size() < end.size() + 6) return std::nullopt;
  name.remove_suffix(end.size());
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || stop != name.data() + name.size() || number < 1) return std::nullopt;
  return number;
}

int64_t file_bytes(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
}

Status remove_file(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return system_error(path, "the oldest file cannot be deleted", errno);
}

uint64_t hashed(uint64_t before, int32_t token) {
  return (before ^ static_cast<uint32_t>(token)) * 0x100000001B3u + 0x9E3779B97F4A7C15u;
}

}  // namespace

Expected<LearnStore> LearnStore::open(const std::string& path, int64_t max_bytes) {
  LearnStore store(path, std::max(max_bytes, kLeastBytes));
  const Status status = store.lock();
  if (status.code() == StatusCode::kNotFound) return invalid_argument(status.message());
  AERIE_RETURN_IF_ERROR(status);
  return store;
}

LearnStore::LearnStore(LearnStore&& other) noexcept
    : path_(std::move(other.path_)),
      max_bytes_(other.max_bytes_),
      lock_(std::exchange(other.lock_, -1)),
      info_(std::move(other.info_)),
      kind_(std::move(other.kind_)),
      older_(std::move(other.older_)),
      number_(other.number_),
      entries_(std::move(other.entries_)),
      entry_bytes_(other.entry_bytes_),
      written_(other.written_),
      known_(std::move(other.known_)),
      counts_(other.counts_),
      next_prompt_(other.next_prompt_),
      prompts_(std::move(other.prompts_)),
      texts_(std::move(other.texts_)),
      samples_of_(std::move(other.samples_of_)) {}

LearnStore::~LearnStore() {
  if (lock_ >= 0) close(lock_);
}

std::string LearnStore::answers_path(int64_t number) const {
  return fmt::format("{}/{}{:06}{}", path_, kAnswers, number, kAnswersEnd);
}

std::string LearnStore::features_path(int64_t number) const {
  return fmt::format("{}/{}{:06}{}", path_, kFeatures, number, kFeaturesEnd);
}

// Held until the process ends, however it does.
Status LearnStore::lock() {
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error(path_, "the folder cannot be made", errno);
  }
  if (!is_folder(path_)) return invalid_argument("{}: this is no folder", path_);
  const std::string name = path_ + "/" + kLockName;
  lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kOwnerAlone);
  if (lock_ < 0) return system_error(path_, "nothing can be written in the folder", errno);
  if (retried([&] { return flock(lock_, LOCK_EX | LOCK_NB); }) == 0) return {};
  if (errno != EWOULDBLOCK) return system_error(name, "the file cannot be locked", errno);
  return invalid_argument("{}: another process keeps replies there: give each a folder of its own",
                          path_);
}

// Features without answers are of a shard that was being written or deleted when a process ended.
Status LearnStore::scan() {
  for (const std::string& name : names_in(path_)) {
    if (const auto number = number_in(name, kAnswers, kAnswersEnd)) {
      older_.push_back({*number, file_bytes(path_ + "/" + name)});
    }
  }
  std::ranges::sort(older_, {}, &Shard::number);
  for (const std::string& name : names_in(path_)) {
    const auto number = number_in(name, kFeatures, kFeaturesEnd);
    if (!number) continue;
    const auto shard = std::ranges::find(older_, *number, &Shard::number);
    if (shard == older_.end()) {
      AERIE_RETURN_IF_ERROR(remove_file(path_ + "/" + name));
    } else {
      shard->bytes += file_bytes(path_ + "/" + name);
    }
  }
  return {};
}

// A process that was killed may have left features of samples whose answers never came: their
// numbers are not given again.
Status LearnStore::check_features() {
  AERIE_ASSIGN_OR_RETURN(const FeatureFiles there, FeatureFiles::open(path_));
  for (const auto& [id, place] : there.tensors) {
    int number = -1;
    std::from_chars(id.data(), id.data() + id.size(), number);
    if (number >= 0 && number < INT_MAX) next_prompt_ = std::max(next_prompt_, number + 1);
  }
  if (there.files.empty() || there.kind == kind_) return {};
  return invalid_argument(
      "{}: there are features of layers {}, and the heads in use read {}: give another folder, or "
      "empty this one",
      path_, fmt::join(there.kind.tap_layers, ","), fmt::join(kind_.tap_layers, ","));
}

// No number is given again. The highest may be in any shard: turns of a chat have an early one's.
Status LearnStore::read_numbers() {
  for (const Shard& shard : older_) {
    number_ = shard.number + 1;
    const std::string path = answers_path(shard.number);
    AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(path, INT64_MAX));
    std::string_view rest = text;
    for (size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;) {
      AERIE_ASSIGN_OR_RETURN(const Sample sample,
                             parse_sample(rest.substr(0, end), path, info_.vocab));
      if (sample.prompt < INT_MAX) next_prompt_ = std::max(next_prompt_, sample.prompt + 1);
      rest.remove_prefix(end + 1);
    }
  }
  return {};
}

Status LearnStore::begin(DataInfo info, FeatureKind kind) {
  info_ = std::move(info);
  info_.served = true;
  kind_ = std::move(kind);
  if (is_there(info_path(path_))) {
    AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(info_path(path_)));
    AERIE_ASSIGN_OR_RETURN(const DataInfo there, parse_info(text, info_path(path_)));
    if (!there.served || there.fingerprint != info_.fingerprint || there.vocab != info_.vocab) {
      return invalid_argument("{}: there is something else than replies of {}: give another folder",
                              path_, info_.model);
    }
    info_.context = std::max(info_.context, there.context);
    info_.held_out = there.held_out;
  }
  AERIE_RETURN_IF_ERROR(scan());
  AERIE_RETURN_IF_ERROR(check_features());
  AERIE_RETURN_IF_ERROR(read_numbers());
  return write_file(info_path(path_), to_json(info_), kOwnerAlone);
}

// A short prompt may be the beginning of many others that have nothing to do with it; a prompt and
// its reply are not.
LearnStore::Place LearnStore::place_of(const LearnedReply& reply) {
  if (texts_.size() > kMostTexts) {
    prompts_.clear();
    texts_.clear();
    samples_of_.clear();
  }
  uint64_t hash = 0;
  std::optional<int> number;
  const auto prompt = std::span(reply.tokens).first(static_cast<size_t>(reply.prompt_length));
  for (const int32_t token : prompt) {
    hash = hashed(hash, token);
    if (const auto known = texts_.find(hash); known != texts_.end()) number = known->second;
  }
  if (const auto known = prompts_.find(hash); known != prompts_.end()) number = known->second;
  if (!number) number = next_prompt_++;
  prompts_[hash] = *number;
  for (size_t i = prompt.size(); i < reply.tokens.size(); ++i) hash = hashed(hash, reply.tokens[i]);
  texts_[hash] = *number;
  return {*number, samples_of_[*number]++};
}

// Of a reply here that begins so and goes on; empty if there is none. Whoever computed them got the
// bits that all get.
std::vector<uint16_t> LearnStore::first_taps(std::span<const int32_t> tokens) const {
  const KnownTexts::Place* place = known_.find(tokens);
  if (place == nullptr) return {};
  if (place->shard != number_) {
    auto read = read_first_rows(features_path(place->shard), kind_, place->sample, tokens.size());
    return read.ok() ? *std::move(read) : std::vector<uint16_t>();
  }
  const auto entry =
      std::ranges::find(entries_, place->sample,
                        [](const Entry& one) -> const std::string& { return one.sample.id; });
  if (entry == entries_.end()) return {};
  const auto values =
      static_cast<ptrdiff_t>(tokens.size() * static_cast<size_t>(feature_width(kind_)));
  return {entry->taps.begin(), entry->taps.begin() + values};
}

// What it read itself behind what it took from the prefix cache.
std::vector<uint16_t> LearnStore::all_taps(const LearnedReply& reply) const {
  const auto width = static_cast<size_t>(feature_width(kind_));
  const size_t tokens = reply.tokens.size(), reused = static_cast<size_t>(reply.first_row);
  const size_t rows = reply.taps.size() / width;
  if (rows == 0 || reused >= tokens || reused + rows + 1 < tokens) return {};
  std::vector<uint16_t> taps;
  if (reused > 0) {
    taps = first_taps(std::span(reply.tokens).first(reused));
    if (taps.empty()) return {};
  }
  const size_t own = std::min(rows, tokens - reused) * width;
  taps.reserve(tokens * width);
  taps.insert(taps.end(), reply.taps.begin(), reply.taps.begin() + static_cast<ptrdiff_t>(own));
  taps.resize(tokens * width, 0);
  return taps;
}

Status LearnStore::add(LearnedReply reply) {
  const auto most = std::min(kMostTokens, static_cast<size_t>(info_.context));
  if (reply.tokens.size() > most) reply.tokens.resize(most);
  const auto prompt = static_cast<size_t>(reply.prompt_length);
  if (prompt < 1 || reply.tokens.size() <= prompt) return {};
  Entry entry;
  const Place place = place_of(reply);
  Sample& sample = entry.sample;
  sample.prompt = place.number;
  sample.index = place.index;
  sample.id = sample_id(place.number, place.index);
  sample.source = "served";
  sample.temperature = reply.temperature;
  sample.seed = reply.seed;
  sample.finish = reply.finish == FinishReason::kStop ? FinishReason::kStop : FinishReason::kLength;
  sample.mask.assign(prompt, 0);
  sample.mask.resize(reply.tokens.size(), 1);
  entry.taps = all_taps(reply);
  sample.tokens = std::move(reply.tokens);
  return add(std::move(entry));
}

Status LearnStore::add(Entry entry) {
  const int64_t share = max_bytes_ / kShardsWithinBound;
  const auto taps = [&] { return static_cast<int64_t>(entry.taps.size() * sizeof(uint16_t)); };
  if (taps() > share) entry.taps = std::vector<uint16_t>();
  // About what its line takes.
  const int64_t bytes = static_cast<int64_t>(entry.sample.tokens.size() * 7 + 200) + taps();
  Status status;
  if (entry_bytes_ > 0 && entry_bytes_ + bytes > std::min(kShardBytes, share)) {
    status = flush();
    begin_shard();
  }
  if (!entry.taps.empty()) known_.add(entry.sample.tokens, {number_, entry.sample.id});
  entries_.push_back(std::move(entry));
  entry_bytes_ += bytes;
  return status;
}

// What earlier flushes wrote stays, whether or not the last one went well.
void LearnStore::begin_shard() {
  counts_.thrown_away += static_cast<int64_t>(entries_.size() - written_);
  entries_.clear();
  const std::string answers = answers_path(number_), features = features_path(number_);
  if (is_there(answers) || is_there(features)) {
    older_.push_back({number_, file_bytes(answers) + file_bytes(features)});
    ++number_;
  } else {
    known_.forget(number_);
  }
  entry_bytes_ = 0;
  written_ = 0;
}

Status LearnStore::make_room(int64_t bytes) {
  int64_t total = bytes;
  for (const Shard& shard : older_) total += shard.bytes;
  while (total > max_bytes_ && !older_.empty()) {
    const Shard& oldest = older_.front();
    // So that no reader finds answers whose features are gone.
    AERIE_RETURN_IF_ERROR(remove_file(answers_path(oldest.number)));
    AERIE_RETURN_IF_ERROR(remove_file(features_path(oldest.number)));
    known_.forget(oldest.number);
    total -= oldest.bytes;
    older_.erase(older_.begin());
  }
  return {};
}

Status LearnStore::write_shard() {
  std::vector<SafetensorsEntry> tensors;
  std::vector<const Entry*> with_taps;
  std::string lines;
  for (const Entry& entry : entries_) {
    lines += to_line(entry.sample) + "\n";
    if (entry.taps.empty()) continue;
    with_taps.push_back(&entry);
    tensors.push_back(
        feature_entry(kind_, entry.sample.id, static_cast<int64_t>(entry.sample.tokens.size())));
  }
  const auto values = [&](size_t index, const ByteSink& sink) {
    return sink(std::as_bytes(std::span(with_taps[index]->taps)));
  };
  if (!tensors.empty()) {
    AERIE_RETURN_IF_ERROR(write_safetensors(features_path(number_), tensors,
                                            feature_metadata(kind_), values, kOwnerAlone)
                              .status());
  }
  return write_file(answers_path(number_), lines, kOwnerAlone);
}

Status LearnStore::flush() {
  if (written_ == entries_.size()) return {};
  AERIE_RETURN_IF_ERROR(make_room(entry_bytes_));
  AERIE_RETURN_IF_ERROR(write_shard());
  counts_.kept += static_cast<int64_t>(entries_.size() - written_);
  written_ = entries_.size();
  return {};
}

}  // namespace aerie
