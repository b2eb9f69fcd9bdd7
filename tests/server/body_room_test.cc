// Bodies that arrive, beyond what memory there is.
#include "server/http/body_room.h"

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <string>

#include "tests/testing/sanitized.h"

namespace aerie::server::body_room_test {

TEST(ArrivingBody, NoMemoryForMoreIsAnErrorAndNotThrown) {
  // A sanitizer ends the program where so much is asked for.
  if constexpr (!test::kSanitized) {
    boost::beast::http::request_header<> head;
    std::string body;
    ArrivingBody::reader reader(head, body);
    boost::beast::error_code error;
    reader.init({}, error);
    const std::string piece = "what has come so far";
    EXPECT_EQ(reader.put(boost::asio::const_buffer(piece.data(), piece.size()), error),
              piece.size());
    EXPECT_FALSE(error);
    // No machine has as much, and none of it is read.
    const boost::asio::const_buffer endless(piece.data(), size_t{1} << 60);
    EXPECT_EQ(reader.put(endless, error), 0U);
    EXPECT_EQ(error, boost::system::errc::not_enough_memory);
    EXPECT_EQ(body, piece);
  }
}

}  // namespace aerie::server::body_room_test
