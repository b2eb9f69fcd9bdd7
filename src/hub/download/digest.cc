#include "hub/download/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <span>
#include <utility>

#include "base/errors.h"

namespace aerie {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

Expected<Digest> Digest::create(DigestKind kind, int64_t size) {
  auto state = std::make_unique<State>();
  const EVP_MD* const function = kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1();
  if (state->context == nullptr || EVP_DigestInit_ex(state->context, function, nullptr) != 1) {
    return internal_error("OpenSSL cannot compute {}: is it restricted on this machine?",
                          kind == DigestKind::kSha256 ? "SHA-256" : "SHA-1");
  }
  Digest digest(std::move(state));
  if (kind == DigestKind::kGitBlob) {
    digest.add(fmt::format("blob {}", size));
    digest.add(std::string_view("\0", 1));
  }
  return digest;
}

void Digest::add(std::string_view bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes = {};
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, bytes.data(), &size);
  std::string text;
  for (const unsigned char byte : std::span(bytes).first(size)) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace aerie
