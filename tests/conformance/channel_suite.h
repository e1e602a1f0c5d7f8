// The contract of Channel (transport/channel.h) as tests, the same for every road. A program
// includes this and names its roads:
//   INSTANTIATE_TEST_SUITE_P(Inproc, ChannelSuite, testing::Values(...), ...);
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/conformance/mesh.h"

namespace kolo::internal {

class ChannelSuite : public testing::TestWithParam<Road> {
 protected:
  static constexpr std::uint64_t kSeed = 20240607;

  ChannelSuite() : mesh_(GetParam().make(2, kSeed)) {}

  Channel& a() { return *mesh_.rows[0][1]; }
  Channel& b() { return *mesh_.rows[1][0]; }
  void destroy_a() { mesh_.rows[0][1].reset(); }

  // Advances what is left of both ends; errors are kept in status_[end].
  void turn() {
    for (std::size_t end = 0; end < 2; ++end) {
      Channel* channel = mesh_.rows[end][1 - end].get();
      if (channel != nullptr) status_[end] = channel->advance();
    }
    mesh_.idle();
  }
  template <typename Done>
  bool pump(const Done& done) {
    return drive_until(done, [&] { turn(); });
  }
  void pump_some() {
    for (int i = 0; i < 2000; ++i) turn();
  }

  static std::vector<std::byte> bytes_of(std::size_t count, unsigned salt) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<std::byte>((i * 2654435761u + salt) >> 7);
    }
    return bytes;
  }
  // Owns the bytes and transfers of a test; addresses stay.
  Transfer& send_from(Channel& channel, std::uint64_t tag, std::vector<std::byte> bytes) {
    Transfer& transfer = make(tag, std::move(bytes));
    channel.post_send(transfer);
    return transfer;
  }
  Transfer& receive_at(Channel& channel, std::uint64_t tag, std::size_t bytes) {
    Transfer& transfer = make(tag, std::vector<std::byte>(bytes));
    channel.post_receive(transfer);
    return transfer;
  }
  static std::vector<std::byte> content(const Transfer& transfer) {
    return {transfer.data, transfer.data + transfer.bytes};
  }

  std::deque<std::vector<std::byte>> memory_;
  std::deque<Transfer> transfers_;
  Mesh mesh_;  // goes before the memory that it may use
  std::array<Status, 2> status_;

 private:
  Transfer& make(std::uint64_t tag, std::vector<std::byte> bytes) {
    memory_.push_back(std::move(bytes));
    std::byte* data = memory_.back().empty() ? nullptr : memory_.back().data();
    transfers_.push_back({.tag = tag, .data = data, .bytes = memory_.back().size()});
    return transfers_.back();
  }
};

TEST_P(ChannelSuite, DeliversMessagesOfOneTagInOrder) {
  std::vector<Transfer*> receives;
  for (unsigned i = 0; i < 100; ++i) receives.push_back(&receive_at(b(), 7, 1 + i * 37));
  for (unsigned i = 0; i < 100; ++i) send_from(a(), 7, bytes_of(1 + i * 37, i));
  ASSERT_TRUE(pump([&] { return receives.back()->done; }));
  for (unsigned i = 0; i < 100; ++i) {
    EXPECT_TRUE(receives[i]->done);
    EXPECT_EQ(content(*receives[i]), bytes_of(1 + i * 37, i)) << "message " << i;
  }
}

TEST_P(ChannelSuite, FindsReceivesByTag) {
  Transfer& second = receive_at(b(), 2, 10);
  Transfer& first = receive_at(b(), 0xffffffffffffffffu, 20);
  Transfer& third = receive_at(b(), 3, 30);
  send_from(a(), 0xffffffffffffffffu, bytes_of(20, 1));
  send_from(a(), 2, bytes_of(10, 2));
  send_from(a(), 3, bytes_of(30, 3));
  ASSERT_TRUE(pump([&] { return third.done; }));
  EXPECT_TRUE(first.done && second.done);
  EXPECT_EQ(content(first), bytes_of(20, 1));
  EXPECT_EQ(content(second), bytes_of(10, 2));
  EXPECT_EQ(content(third), bytes_of(30, 3));
}

TEST_P(ChannelSuite, AMessageWithoutReceiveWaitsForOne) {
  send_from(a(), 1, bytes_of(1000, 1));
  Transfer& later = receive_at(b(), 2, 8);
  send_from(a(), 2, bytes_of(8, 2));
  pump_some();
  EXPECT_FALSE(later.done) << "overtook the message in front of it";
  Transfer& receive = receive_at(b(), 1, 1000);
  ASSERT_TRUE(pump([&] { return later.done; }));
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(content(receive), bytes_of(1000, 1));
  EXPECT_EQ(content(later), bytes_of(8, 2));
}

TEST_P(ChannelSuite, CarriesEmptyMessages) {
  Transfer& receive = receive_at(b(), 5, 0);
  Transfer& after = receive_at(b(), 6, 3);
  Transfer& send = send_from(a(), 5, {});
  pump_some();
  EXPECT_TRUE(receive.done);
  EXPECT_TRUE(send.done);
  EXPECT_FALSE(after.done);
  send_from(a(), 6, bytes_of(3, 9));
  ASSERT_TRUE(pump([&] { return after.done; }));
  EXPECT_EQ(content(after), bytes_of(3, 9));
}

TEST_P(ChannelSuite, CarriesLargeMessagesBothWaysAtOnce) {
  constexpr std::size_t kBytes = (std::size_t{8} << 20) + 1;
  Transfer& at_a = receive_at(a(), 1, kBytes);
  Transfer& at_b = receive_at(b(), 1, kBytes);
  Transfer& from_a = send_from(a(), 1, bytes_of(kBytes, 1));
  Transfer& from_b = send_from(b(), 1, bytes_of(kBytes, 2));
  ASSERT_TRUE(pump([&] { return at_a.done && at_b.done && from_a.done && from_b.done; }));
  EXPECT_EQ(content(at_a), content(from_b));
  EXPECT_EQ(content(at_b), content(from_a));
}

TEST_P(ChannelSuite, ATransferMayBePostedAgain) {
  Transfer& receive = receive_at(b(), 1, 64);
  Transfer& send = send_from(a(), 1, bytes_of(64, 0));
  for (unsigned round = 1; round <= 50; ++round) {
    ASSERT_TRUE(pump([&] { return receive.done && send.done; })) << round;
    EXPECT_EQ(content(receive), bytes_of(64, round - 1));
    const std::vector<std::byte> next = bytes_of(64, round);
    std::memcpy(send.data, next.data(), next.size());
    b().post_receive(receive);
    EXPECT_FALSE(receive.done);
    a().post_send(send);
  }
}

TEST_P(ChannelSuite, CountsWhatMoves) {
  const ChannelCounters before = b().counters();
  Transfer& receive = receive_at(b(), 1, 1000);
  Transfer& empty = receive_at(b(), 2, 0);
  Transfer& send = send_from(a(), 1, bytes_of(1000, 1));
  Transfer& last = send_from(a(), 2, {});
  ASSERT_TRUE(pump([&] { return receive.done && empty.done && send.done && last.done; }));
  EXPECT_EQ(b().counters().bytes_received - before.bytes_received, 1000u);
  EXPECT_EQ(b().counters().messages_received - before.messages_received, 2u);
  EXPECT_EQ(a().counters().bytes_sent, 1000u);
  EXPECT_EQ(a().counters().messages_sent, 2u);
}

TEST_P(ChannelSuite, EndsCleanly) {
  a().finish();
  b().finish();
  ASSERT_TRUE(pump([&] { return a().finished() && b().finished(); }));
  EXPECT_TRUE(a().peer_finished() && b().peer_finished());
  EXPECT_EQ(status_[0], Status::ok());
  EXPECT_EQ(status_[1], Status::ok());
  destroy_a();
  pump_some();
  EXPECT_EQ(status_[1], Status::ok()) << "a clean end is no loss";
}

TEST_P(ChannelSuite, TheEndComesBehindWhatWasPosted) {
  Transfer& first = receive_at(b(), 1, 100000);
  Transfer& second = receive_at(b(), 2, 10);
  send_from(a(), 1, bytes_of(100000, 1));
  send_from(a(), 2, bytes_of(10, 2));
  a().finish();
  ASSERT_TRUE(pump([&] { return b().peer_finished(); }));
  EXPECT_TRUE(first.done && second.done);
  EXPECT_FALSE(b().finished());
  EXPECT_EQ(status_[1], Status::ok());
  Transfer& back = receive_at(a(), 3, 5);  // the other direction is still open
  send_from(b(), 3, bytes_of(5, 3));
  ASSERT_TRUE(pump([&] { return back.done; }));
}

TEST_P(ChannelSuite, AnEndWhileReceivesArePostedIsAnError) {
  receive_at(b(), 1, 10);
  a().finish();
  ASSERT_TRUE(pump([&] { return !status_[1].is_ok(); }));
  EXPECT_EQ(status_[1].code(), StatusCode::kAborted) << status_[1].to_string();
  EXPECT_FALSE(status_[1].text().empty());
  pump_some();
  EXPECT_EQ(status_[1].code(), StatusCode::kAborted) << "as long as they are posted";
}

TEST_P(ChannelSuite, AnEndBeforeReceivesAreDroppedIsAnsweredAllTheSame) {
  receive_at(b(), 1, 10);
  a().finish();
  ASSERT_TRUE(pump([&] { return !status_[1].is_ok(); }));
  b().drop(0);  // the scope of what is posted here
  b().finish();
  ASSERT_TRUE(pump([&] { return a().finished() && b().finished(); }));
  EXPECT_EQ(status_[0], Status::ok());
  EXPECT_EQ(status_[1], Status::ok());
}

TEST_P(ChannelSuite, AVanishedPeerIsLost) {
  receive_at(b(), 1, 10);
  pump_some();
  EXPECT_EQ(status_[1], Status::ok());
  destroy_a();
  ASSERT_TRUE(pump([&] { return !status_[1].is_ok(); }));
  EXPECT_EQ(status_[1].code(), StatusCode::kPeerLost) << status_[1].to_string();
  EXPECT_FALSE(status_[1].text().empty());
  const Status first = status_[1];
  pump_some();
  EXPECT_EQ(status_[1], first) << "a broken channel keeps its error";
  EXPECT_TRUE(b().finished()) << "nothing more to wait for";
}

TEST_P(ChannelSuite, APeerThatVanishesInTheMiddleOfAMessageIsLost) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  Transfer& receive = receive_at(b(), 1, kBytes);
  send_from(a(), 1, std::vector<std::byte>(kBytes));
  status_[1] = b().advance();
  status_[0] = a().advance();
  destroy_a();
  ASSERT_TRUE(pump([&] { return !status_[1].is_ok() || receive.done; }));
  if (!receive.done) {
    EXPECT_EQ(status_[1].code(), StatusCode::kPeerLost) << status_[1].to_string();
  }
}

TEST_P(ChannelSuite, AnotherLengthThanExpectedBreaksTheChannel) {
  Transfer& receive = receive_at(b(), 1, 10);
  send_from(a(), 1, bytes_of(11, 1));
  ASSERT_TRUE(pump([&] { return !status_[1].is_ok(); }));
  EXPECT_EQ(status_[1].code(), StatusCode::kInternal) << status_[1].to_string();
  EXPECT_FALSE(receive.done);
}

TEST_P(ChannelSuite, CancelForgetsReceivesThatHaveNotBegun) {
  Transfer& forgotten = receive_at(b(), 1, 16);
  pump_some();
  b().cancel();
  send_from(a(), 1, bytes_of(16, 1));
  pump_some();
  EXPECT_FALSE(forgotten.done);
  EXPECT_EQ(content(forgotten), std::vector<std::byte>(16));
  Transfer& again = receive_at(b(), 1, 16);
  ASSERT_TRUE(pump([&] { return again.done; }));
  EXPECT_EQ(content(again), bytes_of(16, 1));
  EXPECT_EQ(status_[1], Status::ok());
}

TEST_P(ChannelSuite, CancelTouchesNoMemoryAfterwards) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  Transfer& receive = receive_at(b(), 1, kBytes);
  send_from(a(), 1, std::vector<std::byte>(kBytes, std::byte{0xff}));
  for (int turn = 0; turn < 3; ++turn) {
    status_[0] = a().advance();
    status_[1] = b().advance();
  }
  if (receive.done) {  // this road moves all of it at once
    EXPECT_EQ(content(receive), std::vector<std::byte>(kBytes, std::byte{0xff}));
    return;
  }
  b().cancel();
  const std::vector<std::byte> frozen = content(receive);
  pump_some();
  EXPECT_EQ(content(receive), frozen);
  EXPECT_FALSE(status_[1].is_ok()) << "a message was half-way";
}

}  // namespace kolo::internal
