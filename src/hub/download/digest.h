// What the hub names files by: SHA-256 of large ones, Git's SHA-1 of the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

enum class DigestKind {
  kSha256,   // of the bytes
  kGitBlob,  // SHA-1 of "blob SIZE", a zero and the bytes
};

// One file's, as its bytes come.
class Digest {
 public:
  // `size`: of the whole file.
  static Expected<Digest> create(DigestKind kind, int64_t size);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::string_view bytes);
  std::string hex();  // of all; nothing can be added after

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace aerie
