// Channel::drop() as tests, for every road: scopes that end on either side at any moment, while
// others go on exactly. What a dropped transfer used is unmapped at once: who still touches it
// dies.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "tests/conformance/channel_suite.h"

namespace kolo::internal {

class DropSuite : public ChannelSuite {
 protected:
  // The channels go before the memory that they may use.
  ~DropSuite() override {
    for (auto& row : mesh_.rows) row.clear();
  }

  // A transfer in pages of its own.
  class Mapped {
   public:
    Mapped(std::uint32_t scope, std::uint64_t tag, std::size_t bytes, unsigned salt)
        : mapped_bytes_(bytes + 1) {
      void* pages = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      EXPECT_NE(pages, MAP_FAILED);
      data_ = static_cast<std::byte*>(pages);
      const std::vector<std::byte> content = bytes_of(bytes, salt);
      if (bytes > 0) std::memcpy(data_, content.data(), bytes);
      transfer = {.tag = tag, .data = data_, .bytes = bytes, .scope = scope};
    }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    ~Mapped() { unmap(); }
    void unmap() {
      if (data_ != nullptr) ::munmap(data_, mapped_bytes_);
      data_ = nullptr;
    }
    [[nodiscard]] bool mapped() const { return data_ != nullptr; }
    Transfer transfer;

   private:
    std::byte* data_ = nullptr;
    std::size_t mapped_bytes_;
  };

  Mapped& send(Channel& from, std::uint32_t scope, std::uint64_t tag, std::size_t bytes,
               unsigned salt) {
    Mapped& made = made_.emplace_back(scope, tag, bytes, salt);
    from.post_send(made.transfer);
    return made;
  }
  Mapped& receive(Channel& at, std::uint32_t scope, std::uint64_t tag, std::size_t bytes) {
    Mapped& made = made_.emplace_back(scope, tag, bytes, 0xbad);
    at.post_receive(made.transfer);
    return made;
  }
  // Sizes of messages that no drop breaks the channel in.
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> all = {0, 1, 100, 8000, 100000, (std::size_t{1} << 20) + 5};
    std::erase_if(all, [](std::size_t bytes) { return bytes > GetParam().whole_bytes; });
    return all;
  }
  [[nodiscard]] bool may_break() const { return GetParam().whole_bytes != SIZE_MAX; }

  // Both directions work, in a scope that nobody drops.
  void expect_works(unsigned salt) {
    constexpr std::uint32_t kOther = 1000;
    for (const std::size_t bytes : {std::size_t{9}, std::size_t{300000}}) {
      Mapped& at_a = receive(a(), kOther, 77, bytes);
      Mapped& at_b = receive(b(), kOther, 77, bytes);
      send(a(), kOther, 77, bytes, salt);
      send(b(), kOther, 77, bytes, salt + 1);
      ASSERT_TRUE(pump([&] { return at_a.transfer.done && at_b.transfer.done; }))
          << status_[0].to_string() << " / " << status_[1].to_string();
      EXPECT_EQ(content(at_b.transfer), bytes_of(bytes, salt));
      EXPECT_EQ(content(at_a.transfer), bytes_of(bytes, salt + 1));
    }
    EXPECT_EQ(status_[0], Status::ok());
    EXPECT_EQ(status_[1], Status::ok());
  }
  void expect_ends() {
    a().finish();
    b().finish();
    ASSERT_TRUE(pump([&] { return a().finished() && b().finished(); }));
    EXPECT_EQ(status_[0], Status::ok());
    EXPECT_EQ(status_[1], Status::ok());
  }

  std::deque<Mapped> made_;
};

TEST_P(DropSuite, ScopesAreApart) {
  Mapped& second = receive(b(), 2, 7, 10);
  Mapped& first = receive(b(), 1, 7, 20);
  send(a(), 1, 7, 20, 1);
  send(a(), 2, 7, 10, 2);
  ASSERT_TRUE(pump([&] { return first.transfer.done && second.transfer.done; }));
  EXPECT_EQ(content(first.transfer), bytes_of(20, 1));
  EXPECT_EQ(content(second.transfer), bytes_of(10, 2));
}

TEST_P(DropSuite, WhatHasNotBegunIsForgotten) {
  for (const std::size_t bytes : {std::size_t{10}, std::size_t{300000}}) {
    const auto scope = static_cast<std::uint32_t>(bytes);
    Mapped& out = send(a(), scope, 1, bytes, 1);
    Mapped& in = receive(a(), scope, 1, bytes);
    a().drop(scope);
    out.unmap();
    in.unmap();
    pump_some();
    EXPECT_FALSE(in.transfer.done);
    expect_works(3);
  }
  expect_ends();
}

TEST_P(DropSuite, WhatArrivesOfADroppedScopeIsDiscarded) {
  std::uint32_t scope = 1;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{10}, std::size_t{3} << 20}) {
    ++scope;
    b().drop(scope);
    Mapped& first = send(a(), scope, 1, bytes, 1);
    Mapped& second = send(a(), scope, 2, bytes, 2);
    expect_works(scope);
    EXPECT_TRUE(first.transfer.done && second.transfer.done);
  }
  expect_ends();
}

TEST_P(DropSuite, AMessageThatWaitsForItsReceiveIsDiscarded) {
  std::uint32_t scope = 1;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{10}, std::size_t{3} << 20}) {
    ++scope;
    Mapped& out = send(a(), scope, 1, bytes, 1);
    pump_some();
    b().drop(scope);
    expect_works(scope);
    EXPECT_TRUE(out.transfer.done);
  }
  expect_ends();
}

TEST_P(DropSuite, TheReceiverDropsInTheMiddleOfAMessage) {
  constexpr std::size_t kBytes = std::size_t{24} << 20;
  for (int turns = 0; turns < 6; ++turns) {
    const auto scope = static_cast<std::uint32_t>(turns + 1);
    Mapped& in = receive(b(), scope, 1, kBytes);
    Mapped& out = send(a(), scope, 1, kBytes, 1);
    for (int i = 0; i < turns; ++i) turn();
    b().drop(scope);
    in.unmap();
    pump([&] { return out.transfer.done || !status_[0].is_ok(); });
    if (may_break() && !status_[1].is_ok()) return;
    expect_works(5);
  }
  expect_ends();
}

TEST_P(DropSuite, TheSenderDropsInTheMiddleOfAMessage) {
  constexpr std::size_t kBytes = std::size_t{24} << 20;
  for (int turns = 0; turns < 6; ++turns) {
    const auto scope = static_cast<std::uint32_t>(turns + 1);
    Mapped& in = receive(b(), scope, 1, kBytes);
    Mapped& out = send(a(), scope, 1, kBytes, 1);
    for (int i = 0; i < turns; ++i) turn();
    a().drop(scope);
    out.unmap();
    pump_some();
    if (may_break() && !status_[0].is_ok()) return;
    if (in.transfer.done) {
      EXPECT_EQ(content(in.transfer), bytes_of(kBytes, 1)) << "torn";
    }
    expect_works(5);
    b().drop(scope);  // much later
    in.unmap();
    expect_works(6);
  }
  expect_ends();
}

// Three scopes of random messages both ways, each dropped by each side at a random moment or never.
TEST_P(DropSuite, ScopesEndAtRandomMoments) {
  const int programs = GetParam().sampled ? 10 : 30;
  for (int program = 0; program < programs; ++program) {
    SCOPED_TRACE("program " + std::to_string(program));
    made_.clear();
    mesh_.rows.clear();  // before what they stand on
    mesh_ = GetParam().make(2, kSeed + static_cast<unsigned>(program));
    std::mt19937_64 random(kSeed + static_cast<unsigned>(program));
    const std::vector<std::size_t> sizes = this->sizes();
    struct Message {
      Mapped* mapped;
      std::size_t end;
      unsigned salt;
      bool receives;
    };
    std::vector<Message> messages;
    std::array<std::array<int, 4>, 2> drop_at{};  // [end][scope]: before this post; scope 0: never
    constexpr int kPosts = 40;
    for (auto& of_end : drop_at) {
      for (int& at : of_end) at = static_cast<int>(random() % (2 * kPosts));
    }
    std::array<Channel*, 2> ends = {&a(), &b()};
    const auto has_dropped = [&](std::size_t end, std::uint32_t scope, int post) {
      return scope != 0 && post >= drop_at[end][scope];
    };
    for (int post = 0; post < 2 * kPosts; ++post) {
      for (std::uint32_t scope = 1; scope < 4; ++scope) {
        for (std::size_t end = 0; end < 2; ++end) {
          if (drop_at[end][scope] != post) continue;
          ends[end]->drop(scope);
          for (const Message& m : messages) {
            if (m.end == end && m.mapped->transfer.scope == scope) m.mapped->unmap();
          }
        }
      }
      if (post < kPosts) {
        const auto scope = static_cast<std::uint32_t>(random() % 4);
        const std::size_t bytes = sizes[random() % sizes.size()];
        const auto salt = static_cast<unsigned>(random() % 1000);
        const auto tag = static_cast<std::uint64_t>(post);
        const std::size_t from = random() % 2;
        if (!has_dropped(1 - from, scope, post)) {
          messages.push_back({&receive(*ends[1 - from], scope, tag, bytes), 1 - from, salt, true});
        }
        if (!has_dropped(from, scope, post)) {
          messages.push_back({&send(*ends[from], scope, tag, bytes, salt), from, salt, false});
        }
      }
      for (std::size_t turns = random() % 4; turns > 0; --turns) turn();
    }
    const auto all_done = [&] {
      return std::all_of(messages.begin(), messages.end(), [](const Message& m) {
        return m.mapped->transfer.done || m.mapped->transfer.scope != 0;
      });
    };
    ASSERT_TRUE(pump(all_done)) << status_[0].to_string() << " / " << status_[1].to_string();
    for (const Message& m : messages) {
      if (!m.receives || !m.mapped->transfer.done || !m.mapped->mapped()) continue;
      EXPECT_EQ(content(m.mapped->transfer), bytes_of(m.mapped->transfer.bytes, m.salt))
          << "scope " << m.mapped->transfer.scope << ", tag " << m.mapped->transfer.tag;
    }
    // A scope that only the receiver still has would wait for what never comes.
    for (std::uint32_t scope = 1; scope < 4; ++scope) {
      for (Channel* end : ends) end->drop(scope);
    }
    expect_works(9);
    expect_ends();
  }
}

}  // namespace kolo::internal
