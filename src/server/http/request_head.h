// What a request's head must be, beyond what the library asks of it. Where two programs may
// understand a head in two ways, what one takes for a body is the other's next request.
#pragma once

#include <boost/beast/http/message.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace aerie::server {

// Looks for the end of a head in bytes that come in pieces.
class HeadScan {
 public:
  enum class Found { kNothing, kEnd, kFault };

  // `bytes`: all from the head's first on. Not again after kEnd or kFault.
  Found look(std::string_view bytes);

  size_t size() const { return seen_; }  // after kEnd: of the head, its last empty line counted
  const char* fault() const { return fault_; }

 private:
  size_t seen_ = 0;
  const char* fault_ = nullptr;
};

struct HeadFault {
  int status;
  std::string why;
};

// What is wrong with the fields: a body's length said in another way than by one Content-Length or
// by one Transfer-Encoding of `chunked`, no host or two, a field twice that counts once.
std::optional<HeadFault> find_fault(const boost::beast::http::request_header<>& head);

// Whether what stands behind a chunk's size has no second meaning.
bool is_chunk_extension(std::string_view text);

}  // namespace aerie::server
