#include "cli/sse_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace invar {
namespace {

using Events = std::vector<std::string>;

Events events_of(std::string_view stream, size_t piece) {
  SseReader reader;
  Events events;
  for (size_t at = 0; at < stream.size(); at += piece)
    EXPECT_TRUE(
        reader.feed(stream.substr(at, piece), [&](std::string_view data) { events.emplace_back(data); })
            .ok());
  return events;
}

TEST(SseReader, events_do_not_depend_on_how_the_bytes_arrive) {
  const std::string stream =
      ": ping\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata:  lines\r\n\r\n\n\ndata:\n\ndata: cut";
  const Events want = {"{\"a\":1}", "two\n lines", ""};
  for (size_t piece = 1; piece <= stream.size(); ++piece)
    EXPECT_EQ(events_of(stream, piece), want) << piece;
}

}  // namespace
}  // namespace invar
