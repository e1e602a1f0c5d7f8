// The job's secret: what a file of it must be, and that nothing of it stays where it was held.
#include "transport/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <new>

#include "transport/crypto.h"
#include "transport/secret_file.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/kolo-secret-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = folder_ + "/secret";
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  Result<Secret> read(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    ::chmod(path_.c_str(), 0600);
    return read_secret_file(path_);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SecretFile, TheFirstLineCounts) {
  for (const char* ending : {"", "\n", "\r\n", "\nanother line\n"}) {
    const auto secret = read(std::string("0123456789abcdef") + ending);
    ASSERT_TRUE(secret.is_ok()) << secret.status().text();
    EXPECT_EQ(std::string_view(*secret), "0123456789abcdef");
  }
}

TEST_F(SecretFile, ALineThatIsNoSecretIsToldWithTheCure) {
  struct Case {
    std::string content;
    const char* says;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"", "is empty"},
                                   {"\n0123456789abcdef\n", "is empty"},
                                   {"geheim\n", "has 6 characters, fewer than 16"},
                                   {"Dear all, this is how geheim works\n", "is ordinary text"},
                                   {std::string("0123456789abcde\0geheim", 22), "is ordinary text"},
                                   {"geheim geheim", "is ordinary text"},
                                   {std::string(5000, 'x'), "more than 4095"}}) {
    const auto secret = read(c.content);
    ASSERT_FALSE(secret.is_ok()) << c.says;
    EXPECT_EQ(secret.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(secret.status().text(), AllOf(HasSubstr(path_), HasSubstr(c.says),
                                              HasSubstr("openssl rand"), Not(HasSubstr("geheim"))));
  }
}

// In memory that outlives it, so that it may be looked at.
class Place {
 public:
  Secret& make(Secret&& secret) { return *new (bytes_.data()) Secret(std::move(secret)); }
  [[nodiscard]] bool holds(const char* text) const {
    const volatile unsigned char* const seen = bytes_.data();  // whatever lives there
    std::string all;
    for (std::size_t i = 0; i < bytes_.size(); ++i) all += static_cast<char>(seen[i]);
    return all.find(text) != std::string::npos;
  }

 private:
  alignas(Secret) std::array<unsigned char, sizeof(Secret)> bytes_{};
};

TEST(Secret, NothingOfItStaysWhereItWasHeld) {
  Place place;  // short enough to lie within the object
  Secret& secret = place.make("geheimgeheim");
  EXPECT_TRUE(place.holds("geheim"));
  const Secret copy = secret;
  const Secret moved = std::move(secret);
  EXPECT_FALSE(place.holds("geheim"));
  EXPECT_EQ(moved, copy);
  secret = moved;
  EXPECT_TRUE(place.holds("geheim"));
  secret = "x";
  EXPECT_FALSE(place.holds("eheim"));
  secret = moved;
  secret.~Secret();
  EXPECT_FALSE(place.holds("geheim"));
}

TEST(Key, NothingOfItStaysWhereItWasHeld) {
  constexpr std::byte kMark{0x5a};
  alignas(Key) std::array<unsigned char, sizeof(Key)> place{};
  const auto marks = [&place] {
    const volatile unsigned char* const seen = place.data();  // whatever lives there
    std::size_t count = 0;
    for (std::size_t i = 0; i < place.size(); ++i) count += seen[i] == 0x5a ? 1 : 0;
    return count;
  };
  Digest digest;
  digest.fill(kMark);
  Key* const key = new (place.data()) Key(std::move(digest));
  EXPECT_EQ(digest, Digest{});
  EXPECT_EQ(marks(), sizeof(Digest));
  const Key copy = *key;
  key->~Key();
  EXPECT_EQ(marks(), 0U);
  EXPECT_EQ(static_cast<const Digest&>(copy)[31], kMark);
}

}  // namespace
}  // namespace kolo::internal
