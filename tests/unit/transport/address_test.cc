// "host:port": what is read, what is refused, and that text comes back as it was.
#include "transport/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace kolo::internal;
using testing::HasSubstr;

TEST(HostPort, ReadsNamesAndAddresses) {
  EXPECT_EQ(*parse_host_port("name:0"), (HostPort{"name", 0}));
  EXPECT_EQ(*parse_host_port("10.0.0.1:80"), (HostPort{"10.0.0.1", 80}));
  EXPECT_EQ(*parse_host_port("[::1]:65535"), (HostPort{"::1", 65535}));
  for (const char* text : {"name:0", "10.0.0.1:80", "[fd00::1]:2"}) {
    EXPECT_EQ(to_text(*parse_host_port(text)), text);
  }
}

TEST(HostPort, RefusesAllElseAndQuotesIt) {
  for (const char* text :
       {"",        ":",          ":80",    "name",  "name:",    "name:x",  "name:80x",
        "name:-1", "name:65536", "::1:80", "[]:80", "[::1]",    "[::1]80", "[::1:80",
        "::1]:80", "[[::1]]:80", "[[]:0",  "[]]:0", "[name:80", "name]:80"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.status().text(),
                HasSubstr('"' + std::string(text) + "\" is not an address"));
  }
}

}  // namespace
