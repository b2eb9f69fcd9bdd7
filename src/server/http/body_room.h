// What the bodies of all connections may take of the memory, and a body that grows within it.
#pragma once

#include <algorithm>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional/optional.hpp>
#include <boost/system/errc.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace aerie::server {

// Thread-safe.
class BodyRoom : public std::enable_shared_from_this<BodyRoom> {
 public:
  // Whatever else there is, a body of this size has room: connections are limited.
  static constexpr size_t kSmall = size_t{64} << 10;

  explicit BodyRoom(size_t bytes) : bytes_(bytes) {}

  // What one body takes; given back with it. Not thread-safe.
  class Share {
   public:
    Share(std::shared_ptr<BodyRoom> room, std::string client)
        : room_(std::move(room)), client_(std::move(client)) {}
    ~Share() { room_->give_back(client_, bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Whether it may be of this size. No client has more than half of the room.
    bool grow(size_t bytes) {
      if (bytes <= std::max(kSmall, bytes_)) return true;
      if (!room_->take(client_, bytes - bytes_)) return false;
      bytes_ = bytes;
      return true;
    }

   private:
    const std::shared_ptr<BodyRoom> room_;
    const std::string client_;
    size_t bytes_ = 0;
  };
  std::shared_ptr<Share> share(std::string client) {
    return std::make_shared<Share>(shared_from_this(), std::move(client));
  }

 private:
  bool take(const std::string& client, size_t bytes);
  void give_back(const std::string& client, size_t bytes);

  const size_t bytes_;
  std::mutex mutex_;
  size_t taken_ = 0;
  std::map<std::string, size_t> taken_by_;  // those that have any
};

// For Beast's parsers. Theirs makes room for all that is announced before any of it has come. Where
// there is no memory for more, the error is errc::not_enough_memory: thrown through the library, it
// would end the connection without a word.
struct ArrivingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool kIsRequest, typename Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>& /*head*/, std::string& body)
        : body_(body) {}

    void init(const boost::optional<uint64_t>& announced, boost::beast::error_code& error) {
      announced_ = announced.value_or(SIZE_MAX);
      error = {};
    }
    template <typename Buffers>
    size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      size_t bytes = 0;
      for (const auto piece : boost::beast::buffers_range_ref(buffers)) {
        const size_t wanted = body_.size() + piece.size();
        if (wanted > body_.capacity()) {
          // A string that has some takes twice as much, whatever is asked for.
          std::string grown;
          try {
            grown.reserve(std::max(wanted, std::min<size_t>(announced_, 2 * body_.capacity())));
          } catch (const std::bad_alloc&) {
            error = make_error_code(boost::system::errc::not_enough_memory);
            return bytes;
          }
          grown += body_;
          body_.swap(grown);
        }
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        bytes += piece.size();
      }
      error = {};
      return bytes;
    }
    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    std::string& body_;
    uint64_t announced_ = 0;
  };
};

}  // namespace aerie::server
