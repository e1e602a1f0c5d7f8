// What is particular to the TCP channel: events, malformed streams, descriptors, allocations. The
// contract that it shares with other roads is in tests/conformance.
#include "transport/tcp/tcp_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <string>
#include <thread>

#include "tests/unit/count_allocations.h"
#include "tests/unit/transport/loopback.h"

namespace kolo::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Transfer transfer(std::uint64_t tag, void* data, std::size_t bytes) {
  return {.tag = tag, .data = static_cast<std::byte*>(data), .bytes = bytes};
}

// A channel at one end, a plain socket at the other.
struct Rig {
  explicit Rig(bool checksum = false) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    far.reset(fds[1]);
    channel = std::move(*TcpChannel::create(UniqueFd(fds[0]), "rank 3 (host b)", poller, checksum));
  }
  void write(const void* bytes, std::size_t count) const {
    ASSERT_EQ(::send(far.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  void write_header(std::uint64_t tag, std::uint64_t bytes) const {
    const SegmentHeader header{.tag = tag, .bytes = bytes};
    write(&header, sizeof header);
  }
  Poller poller = std::move(*Poller::create());
  UniqueFd far;
  std::unique_ptr<TcpChannel> channel;
};

TEST(TcpChannel, AnEndOfFileNamesThePeer) {
  Rig rig;
  EXPECT_TRUE(rig.channel->advance().is_ok());
  rig.far.reset();
  const Status status = rig.channel->advance();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status.text(), AllOf(HasSubstr("rank 3 (host b)"), HasSubstr("closed")));
}

TEST(TcpChannel, AnEndOfFileBehindAMessageIsSeenByTheSameAdvance) {
  Rig rig;
  std::uint64_t in = 0;
  Transfer receive = transfer(1, &in, sizeof in);
  rig.channel->post_receive(receive);
  rig.write_header(1, sizeof in);
  const std::uint64_t out = 42;
  rig.write(&out, sizeof out);
  rig.far.reset();
  // Its event came together with the message's: there is no other one to wait for.
  EXPECT_EQ(rig.channel->advance().code(), StatusCode::kPeerLost);
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(in, 42U);
}

TEST(TcpChannel, MalformedStreamsAreInternalErrors) {
  for (const std::uint64_t bytes : {std::uint64_t{9}, std::uint64_t{1} << 63, UINT64_MAX - 1}) {
    Rig rig;
    std::uint64_t in = 7;
    Transfer receive = transfer(1, &in, sizeof in);
    rig.channel->post_receive(receive);
    rig.write_header(1, bytes);
    EXPECT_EQ(rig.channel->advance().code(), StatusCode::kInternal);
    EXPECT_FALSE(receive.done);
    EXPECT_EQ(in, 7U);
  }
  const auto error_after = [](std::initializer_list<SegmentHeader> headers) {
    Rig rig;
    std::vector<std::byte> in(2 * kSegmentBytes);
    Transfer receive = transfer(1, in.data(), in.size());
    rig.channel->post_receive(receive);
    const std::vector<std::byte> payload(kSegmentBytes);
    for (const SegmentHeader& header : headers) {
      rig.write(&header, sizeof header);
      std::size_t left = header.kind == SegmentKind::kMessage ? payload_bytes(header) : 0;
      while (left > 0) {
        const ssize_t n = ::send(rig.far.get(), payload.data(), left, MSG_NOSIGNAL);
        if (n > 0) left -= static_cast<std::size_t>(n);
        if (!rig.channel->advance().is_ok()) break;  // takes no more
      }
    }
    const Status status = rig.channel->advance();
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.to_string();
    EXPECT_FALSE(receive.done);
    return status.text();
  };
  const SegmentHeader end{.kind = SegmentKind::kEnd};
  const SegmentHeader abandoned{.kind = SegmentKind::kAbandoned};
  const SegmentHeader first{.tag = 1, .bytes = 2 * kSegmentBytes};
  EXPECT_THAT(error_after({end, first}), HasSubstr("after its end"));
  for (const SegmentHeader& other :
       {SegmentHeader{.tag = 2, .bytes = first.bytes, .offset = kSegmentBytes},
        SegmentHeader{.tag = 1, .bytes = first.bytes + 1, .offset = kSegmentBytes},
        SegmentHeader{.tag = 1, .bytes = first.bytes, .offset = 7},
        SegmentHeader{.tag = 1, .bytes = first.bytes, .offset = kSegmentBytes, .scope = 3}}) {
    EXPECT_THAT(error_after({first, other}), HasSubstr("does not continue"));
  }
  EXPECT_THAT(error_after({{.tag = 1, .bytes = 8, .offset = 4}}), HasSubstr("does not continue"));
  for (const SegmentHeader& word : {abandoned, SegmentHeader{.kind = SegmentKind{77}}}) {
    EXPECT_THAT(error_after({word}), HasSubstr("none of kolo's"));
  }
  EXPECT_THAT(error_after({first, end}), HasSubstr("none of kolo's"));
}

TEST(TcpChannel, EveryCutOfAStreamGivesTheSameMessages) {
  std::string stream;
  const auto append = [&](std::uint64_t tag, const std::string& body) {
    const SegmentHeader header{.tag = tag, .bytes = body.size()};  // without checksums
    stream.append(reinterpret_cast<const char*>(&header), sizeof header);
    stream += body;
  };
  append(1, "first");
  append(2, "");
  append(3, std::string(20000, 'z'));
  append(4, "last");
  for (const std::size_t step : {std::size_t{1}, std::size_t{31}, std::size_t{33}, stream.size()}) {
    Rig rig;
    std::string bodies[4] = {std::string(5, ' '), "", std::string(20000, ' '), std::string(4, ' ')};
    Transfer receives[4];
    for (std::size_t i = 0; i < 4; ++i) {
      receives[i] = transfer(i + 1, bodies[i].data(), bodies[i].size());
      rig.channel->post_receive(receives[i]);
    }
    for (std::size_t at = 0; at < stream.size(); at += step) {
      rig.write(stream.data() + at, std::min(step, stream.size() - at));
      ASSERT_TRUE(rig.channel->advance().is_ok());
    }
    EXPECT_EQ(bodies[0], "first");
    EXPECT_EQ(bodies[2], std::string(20000, 'z'));
    EXPECT_EQ(bodies[3], "last");
    for (const Transfer& receive : receives) EXPECT_TRUE(receive.done);
  }
}

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283U);
  EXPECT_EQ(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283U);
  EXPECT_EQ(crc32c(0, nullptr, 0), 0U);
}

// What a channel with checksums sends for these bodies, each with its place as tag, and the end.
std::string recorded(const std::vector<std::string>& bodies) {
  Rig rig(true);
  std::deque<Transfer> sends;
  for (const std::string& body : bodies) {
    sends.push_back(transfer(sends.size(), const_cast<char*>(body.data()), body.size()));
    rig.channel->post_send(sends.back());
  }
  rig.channel->finish();
  std::string stream;
  std::string part(1 << 16, ' ');
  while (true) {
    EXPECT_TRUE(rig.channel->advance().is_ok());
    const ssize_t n = ::recv(rig.far.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (n <= 0) return stream;
    stream.append(part, 0, static_cast<std::size_t>(n));
  }
}

// Takes the stream; how it ends. Whatever is delivered as done is right.
Status replayed(const std::string& stream, const std::vector<std::string>& bodies) {
  Rig rig(true);
  std::deque<std::string> in;
  std::deque<Transfer> receives;
  for (const std::string& body : bodies) {
    in.emplace_back(body.size(), ' ');
    receives.push_back(transfer(receives.size(), in.back().data(), body.size()));
    rig.channel->post_receive(receives.back());
  }
  Status status;
  for (std::size_t at = 0; at < stream.size() && status.is_ok();) {
    const ssize_t n =
        ::send(rig.far.get(), stream.data() + at,
               std::min<std::size_t>(stream.size() - at, 1 << 16), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) at += static_cast<std::size_t>(n);
    status = rig.channel->advance();
  }
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    if (receives[i].done) {
      EXPECT_EQ(in[i], bodies[i]) << "damaged, and delivered";
    }
  }
  return status;
}

TEST(TcpChannel, EveryFlippedBitIsCaughtByTheChecksum) {
  const std::vector<std::string> bodies = {"first", "", std::string(150, 'z'), "last"};
  const std::string stream = recorded(bodies);
  ASSERT_TRUE(replayed(stream, bodies).is_ok());
  for (std::size_t bit = 0; bit < stream.size() * 8; ++bit) {
    std::string damaged = stream;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const Status status = replayed(damaged, bodies);
    ASSERT_EQ(status.code(), StatusCode::kPeerLost) << "bit " << bit << ": " << status.to_string();
    ASSERT_THAT(status.text(),
                AllOf(HasSubstr("rank 3 (host b)"), HasSubstr("damaged"), HasSubstr("checksum")));
  }
}

TEST(TcpChannel, DamageInALargeMessageNamesItsPlaceAndBothSums) {
  std::mt19937_64 random(2024);
  const std::vector<std::string> bodies = {std::string((std::size_t{2} << 20) + 77, 'x')};
  const std::string stream = recorded(bodies);
  ASSERT_TRUE(replayed(stream, bodies).is_ok());
  for (int i = 0; i < 50; ++i) {
    std::string damaged = stream;
    const std::size_t at = sizeof(SegmentHeader) + random() % kSegmentBytes;  // first segment
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    const Status status = replayed(damaged, bodies);
    ASSERT_EQ(status.code(), StatusCode::kPeerLost) << "byte " << at << status.to_string();
    ASSERT_THAT(status.text(), AllOf(HasSubstr("from byte 0 to 1048576"), HasSubstr("tag 0"),
                                     HasSubstr("2097229 bytes"), HasSubstr("here, 0x")));
  }
}

TEST(TcpChannel, AReceivePostedLateNeedsNoNewEvent) {
  Rig rig;
  rig.write_header(1, 30000);
  rig.write(std::string(30000, 'x').data(), 30000);
  EXPECT_TRUE(rig.channel->advance().is_ok());
  while (rig.poller.poll()) {
  }
  std::string in(30000, ' ');
  Transfer receive = transfer(1, in.data(), in.size());
  rig.channel->post_receive(receive);
  EXPECT_TRUE(rig.channel->advance().is_ok());
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(in, std::string(30000, 'x'));
}

TEST(TcpChannel, ClosesAndUnregistersItsDescriptor) {
  Rig rig;
  while (rig.poller.poll()) {
  }
  rig.channel.reset();
  char byte = 0;
  EXPECT_EQ(::recv(rig.far.get(), &byte, 1, 0), 0);
  EXPECT_FALSE(rig.poller.poll());
}

TEST(TcpChannel, TheSteadyStateAllocatesNothing) {
  std::vector<MeshRank> ranks = connect_mesh({});
  Channel& a = *ranks[0].fabric->channels[0][1];
  Channel& b = *ranks[1].fabric->channels[0][0];
  std::vector<char> out(300000, 'o');
  std::vector<char> in(300000);
  const auto round = [&](std::size_t bytes) {
    Transfer send = transfer(1, out.data(), bytes);
    Transfer receive = transfer(1, in.data(), bytes);
    a.post_send(send);
    b.post_receive(receive);
    while (!receive.done || !send.done) {
      if (!a.advance().is_ok() || !b.advance().is_ok()) return;
    }
  };
  for (const std::size_t bytes : {8U, 300000U}) round(bytes);
  const std::size_t before = allocations_so_far();
  for (int i = 0; i < 200; ++i) {
    for (const std::size_t bytes : {0U, 8U, 9000U, 300000U}) round(bytes);
  }
  EXPECT_EQ(allocations_so_far(), before);
  EXPECT_EQ(in, out);
}

// Two threads that sleep whenever nothing moves, with messages of random sizes both ways: an edge
// that got lost would leave both asleep until the limit.
TEST(TcpChannel, NoEventIsLostBetweenSleepers) {
  constexpr std::uint64_t kSeed = 77;
  constexpr int kRounds = 3000;
  std::vector<MeshRank> ranks = connect_mesh({});
  const Nanos start = SteadyClock().now();
  const auto run = [&](std::size_t self) {
    Channel& channel = *ranks[self].fabric->channels[1][1 - self];
    Poller& poller = *ranks[self].poller;
    std::mt19937_64 sizes(kSeed);  // the same on both sides
    std::vector<std::uint64_t> out(100000);
    std::vector<std::uint64_t> in(100000);
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t words = round % 50 == 0 ? sizes() % 100000 : sizes() % 20;
      if (words > 0) out[words - 1] = static_cast<std::uint64_t>(round);
      const auto tag = static_cast<std::uint64_t>(round);
      Transfer send = transfer(tag, out.data(), words * 8);
      Transfer receive = transfer(tag, in.data(), words * 8);
      channel.post_send(send);
      channel.post_receive(receive);
      while (true) {
        ASSERT_TRUE(channel.advance().is_ok());
        if (send.done && receive.done) break;
        ASSERT_TRUE(poller.wait(20s)) << "rank " << self << " round " << round;
      }
      if (words > 0) {
        ASSERT_EQ(in[words - 1], tag);
      }
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_LT(SteadyClock().now() - start, 60s);
}

}  // namespace
}  // namespace kolo::internal
