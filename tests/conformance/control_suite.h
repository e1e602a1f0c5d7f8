// The contract of ControlLink (transport/control_link.h) as tests, the same for every road. A
// program includes this and names its roads:
//   INSTANTIATE_TEST_SUITE_P(Tcp, ControlSuite, testing::Values(...), ...);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/mesh.h"
#include "transport/control_link.h"

namespace kolo::internal {

struct ControlMesh {
  std::shared_ptr<void> owner;                      // whatever the links need; destroyed after them
  std::vector<std::unique_ptr<ControlLink>> links;  // of each rank

  ControlMesh() = default;
  ControlMesh(ControlMesh&&) = default;
  ControlMesh& operator=(ControlMesh&&) = default;
  ~ControlMesh() { links.clear(); }
};

struct ControlRoad {
  std::string name;
  std::function<ControlMesh(const std::vector<int>& host_index)> make;
};

inline std::string control_road_name(const testing::TestParamInfo<ControlRoad>& info) {
  return info.param.name;
}

class ControlSuite : public testing::TestWithParam<ControlRoad> {
 protected:
  void make(const std::vector<int>& host_index) {
    mesh_ = GetParam().make(host_index);
    events_.assign(host_index.size(), {});
  }
  ControlLink& link(std::size_t rank) { return *mesh_.links[rank]; }
  std::vector<ControlEvent>& events(std::size_t rank) { return events_[rank]; }
  void destroy(std::size_t rank) { mesh_.links[rank].reset(); }

  // Polls every link that is left until done; what comes is kept in events().
  template <typename Done>
  bool pump(const Done& done) {
    return drive_until(done, [&] {
      for (std::size_t rank = 0; rank < mesh_.links.size(); ++rank) {
        if (mesh_.links[rank] == nullptr) continue;
        while (std::optional<ControlEvent> event = mesh_.links[rank]->poll()) {
          events_[rank].push_back(std::move(*event));
        }
      }
    });
  }
  void pump_some() {
    int turns = 0;
    pump([&turns] { return ++turns > 500; });
  }
  std::size_t count(std::size_t rank, ControlEvent::Kind kind, int peer) {
    std::size_t found = 0;
    for (const ControlEvent& event : events_[rank]) {
      if (event.kind == kind && event.rank == peer) ++found;
    }
    return found;
  }

  ControlMesh mesh_;
  std::vector<std::vector<ControlEvent>> events_;
};

using Kind = ControlEvent::Kind;

TEST_P(ControlSuite, FramesArriveWholeInOrder) {
  make({0, 0});
  const ControlCounters before = link(0).counters();  // connecting may have used it, too
  std::vector<std::string> sent;
  for (std::size_t i = 0; i < 300; ++i) {
    sent.emplace_back((i * 7919) % 5000, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(link(0).send(1, sent.back()).is_ok());
    ASSERT_TRUE(link(1).send(0, sent.back()).is_ok());
  }
  ASSERT_TRUE(pump([&] { return events(0).size() == 300 && events(1).size() == 300; }));
  for (std::size_t i = 0; i < 300; ++i) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(events(rank)[i].kind, Kind::kFrame);
      EXPECT_EQ(events(rank)[i].rank, 1 - static_cast<int>(rank));
      EXPECT_EQ(events(rank)[i].bytes, sent[i]);
    }
  }
  EXPECT_EQ(link(0).counters().frames_sent - before.frames_sent, 300u);
  EXPECT_EQ(link(0).counters().frames_received - before.frames_received, 300u);
  EXPECT_GT(link(0).counters().bytes_sent, before.bytes_sent);
}

TEST_P(ControlSuite, AnEventThatIsHandedBackComesFirst) {
  make({0, 0});
  ASSERT_TRUE(link(0).send(1, "one").is_ok());
  ASSERT_TRUE(link(0).send(1, "two").is_ok());
  std::optional<ControlEvent> event;
  ASSERT_TRUE(drive_until([&] { return event.has_value(); }, [&] { event = link(1).poll(); }));
  EXPECT_EQ(event->bytes, "one");
  link(1).put_back(*event);
  ASSERT_TRUE(pump([&] { return events(1).size() == 2; }));
  EXPECT_EQ(events(1)[0].bytes, "one");
  EXPECT_EQ(events(1)[1].bytes, "two");
}

TEST_P(ControlSuite, WhatHasArrivedIsConfirmed) {
  make({0, 0});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(link(0).send(1, std::string(1000, 'x')).is_ok());
  ASSERT_TRUE(pump([&] { return events(1).size() == 10; }));
  EXPECT_TRUE(pump([&] { return link(0).delivery(1).confirmed == link(0).delivery(1).queued; }));
}

TEST_P(ControlSuite, LinksAreBetweenMembersLeadersAndTheRootOnly) {
  make({0, 0, 1, 1});
  const std::vector<std::pair<int, int>> linked = {{0, 1}, {0, 2}, {2, 3}};
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      const std::pair<int, int> pair(std::min(a, b), std::max(a, b));
      const bool due = std::find(linked.begin(), linked.end(), pair) != linked.end();
      const Status status = link(static_cast<std::size_t>(a)).send(b, "hello");
      EXPECT_EQ(status.code(), due ? StatusCode::kOk : StatusCode::kPeerLost) << a << " " << b;
    }
  }
  ASSERT_TRUE(pump([&] {
    return events(0).size() == 2 && events(1).size() == 1 && events(2).size() == 2 &&
           events(3).size() == 1;
  }));
  EXPECT_EQ(count(2, Kind::kFrame, 0), 1u);
  EXPECT_EQ(count(2, Kind::kFrame, 3), 1u);
}

TEST_P(ControlSuite, CarriesAnEmptyFrameAndALargeOne) {
  make({0, 0});
  const std::string large(std::size_t{8} << 20, 'x');
  ASSERT_TRUE(link(0).send(1, "").is_ok());
  ASSERT_TRUE(link(0).send(1, large).is_ok());
  ASSERT_TRUE(link(0).send(1, "after").is_ok());
  ASSERT_TRUE(pump([&] { return events(1).size() == 3; }));
  EXPECT_EQ(events(1)[0].bytes, "");
  EXPECT_EQ(events(1)[1].bytes, large);
  EXPECT_EQ(events(1)[2].bytes, "after");
}

TEST_P(ControlSuite, AFrameOverTheBoundIsRefusedAndTheLinkGoesOn) {
  make({0, 0});
  const std::string huge(ControlLink::kMaxFrameBytes + 1, 'x');
  const Status status = link(0).send(1, huge);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_FALSE(status.text().empty());
  ASSERT_TRUE(link(0).send(1, "small").is_ok());
  ASSERT_TRUE(pump([&] { return events(1).size() == 1; }));
  EXPECT_EQ(events(1)[0].bytes, "small");
}

TEST_P(ControlSuite, AQueueThatNobodyEmptiesIsBounded) {
  make({0, 0});
  const std::string frame(std::size_t{16} << 20, 'x');
  Status status;
  int sent = 0;
  for (; sent < 40 && status.is_ok(); ++sent) status = link(0).send(1, frame);
  EXPECT_EQ(status.code(), StatusCode::kResource) << status.to_string();
  const std::size_t accepted = static_cast<std::size_t>(sent) - 1;
  ASSERT_TRUE(pump([&] { return events(1).size() == accepted; }));  // what was taken arrives
}

TEST_P(ControlSuite, EndsCleanly) {
  make({0, 0, 1});
  ASSERT_TRUE(link(1).send(0, "last words").is_ok());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(link(rank).finished());
    link(rank).finish();
  }
  ASSERT_TRUE(pump([&] {
    return link(0).finished() && link(1).finished() && link(2).finished() && events(0).size() == 3;
  }));
  EXPECT_EQ(count(0, Kind::kFrame, 1), 1u);
  EXPECT_EQ(count(0, Kind::kClosed, 1), 1u);
  EXPECT_EQ(count(0, Kind::kClosed, 2), 1u);
  destroy(1);
  destroy(2);
  pump_some();
  EXPECT_EQ(events(0).size(), 3u) << "a clean end is no loss, and told once";
}

TEST_P(ControlSuite, AnEndedPeerStillReceives) {
  make({0, 0});
  link(0).finish();
  ASSERT_TRUE(pump([&] { return count(1, Kind::kClosed, 0) == 1; }));
  ASSERT_TRUE(link(1).send(0, "still here").is_ok());
  ASSERT_TRUE(pump([&] { return count(0, Kind::kFrame, 1) == 1; }));
  EXPECT_FALSE(link(0).finished());
  link(1).finish();
  ASSERT_TRUE(pump([&] { return link(0).finished() && link(1).finished(); }));
}

TEST_P(ControlSuite, AVanishedPeerIsLostOnceAndNamed) {
  make({0, 0, 0});
  ASSERT_TRUE(link(1).send(0, "before").is_ok());
  destroy(1);
  ASSERT_TRUE(pump([&] { return count(0, Kind::kLost, 1) == 1; }));
  EXPECT_EQ(count(0, Kind::kFrame, 1), 1u) << "what came before the loss is delivered";
  EXPECT_FALSE(events(0).back().bytes.empty());
  pump_some();
  EXPECT_EQ(count(0, Kind::kLost, 1), 1u);
  const Status status = link(0).send(1, "hello?");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_NE(status.text().find("rank 1"), std::string::npos) << status.text();
  ASSERT_TRUE(link(0).send(2, "you are still here").is_ok());
  ASSERT_TRUE(pump([&] { return events(2).size() == 1; }));
  link(0).finish();
  link(2).finish();
  ASSERT_TRUE(pump([&] { return link(0).finished() && link(2).finished(); }));
}

TEST_P(ControlSuite, AloneThereIsNobodyToWaitFor) {
  make({0});
  EXPECT_FALSE(link(0).poll().has_value());
  EXPECT_EQ(link(0).send(0, "me").code(), StatusCode::kPeerLost);
  link(0).finish();
  EXPECT_TRUE(link(0).finished());
}

}  // namespace kolo::internal
