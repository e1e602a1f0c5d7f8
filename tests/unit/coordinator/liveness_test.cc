#include "coordinator/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Runs a rank that beats until `stops`; when the other one counts it as lost.
Nanos lost_at(Nanos timeout, Nanos stops) {
  Liveness speaker({1}, timeout, 0ms);
  Liveness listener({0}, timeout, 0ms);
  for (Nanos now = 0ms;; now += 1ms) {
    if (now < stops && speaker.take_beat(now)) listener.heard(0, now);
    if (!listener.take_silent(now).empty()) return now;
  }
}

// R2, R4: wherever in its beat a rank stops, the verdict comes after T, and at most T + 0.5 s.
TEST(Liveness, NamesWhoStopsBetweenTheTimeoutAndHalfASecondLater) {
  for (const Nanos timeout : {Nanos(500ms), Nanos(1s), Nanos(5s), Nanos(60s)}) {
    for (Nanos stops = 1ms; stops < 600ms; stops += 7ms) {
      const Nanos silence = lost_at(timeout, stops) - stops;
      EXPECT_GE(silence, timeout);
      EXPECT_LE(silence, timeout + 300ms);
    }
  }
}

// Beats leave all the while, and are confirmed `delay` later, but nothing is after `cut`; when the
// other rank is given up.
Nanos unconfirmed_at(Nanos timeout, Nanos cut, Nanos delay) {
  Liveness liveness({1}, timeout, 0ms);
  std::uint64_t sent = 0;
  std::uint64_t confirmed = 0;
  Nanos sent_at = 0ms;
  for (Nanos now = 0ms;; now += 1ms) {
    liveness.heard(1, now);
    const bool beats = liveness.take_beat(now);
    if (now <= cut && now >= sent_at + delay) confirmed = sent;
    if (beats) {
      sent += 40;
      sent_at = now;
    }
    if (beats || liveness.is_confirmation_due(now)) liveness.confirmed(1, sent, confirmed, now);
    if (!liveness.take_unconfirmed(now).empty()) return now;
  }
}

TEST(Liveness, NamesWhomNothingReachesBetweenTheTimeoutAndHalfASecondLater) {
  for (const Nanos timeout : {Nanos(500ms), Nanos(1010ms), Nanos(5s)}) {
    for (Nanos cut = 1ms; cut < 600ms; cut += 7ms) {
      for (const Nanos delay : {Nanos(2ms), Nanos(40ms)}) {  // the latter: of the system of Linux
        const Nanos age = unconfirmed_at(timeout, cut, delay) - cut;
        EXPECT_GE(age, timeout);
        EXPECT_LE(age, timeout + 450ms);
      }
    }
  }
}

TEST(Liveness, AskedAfterLateWhatHasBeenConfirmedMeanwhileCounts) {
  Liveness liveness({1}, 1s, 0ms);
  liveness.confirmed(1, 100, 60, 10ms);
  EXPECT_EQ(liveness.next_deadline(), Nanos(0ms));  // a beat
  EXPECT_TRUE(liveness.is_confirmation_due(2s));    // this rank was held up
  liveness.confirmed(1, 140, 100, 2s);
  EXPECT_THAT(liveness.take_unconfirmed(2s), IsEmpty());
  liveness.confirmed(1, 140, 140, 2500ms);
  EXPECT_THAT(liveness.take_unconfirmed(4s), IsEmpty());
}

TEST(Liveness, NamesEachOnce) {
  Liveness liveness({1, 2}, 1s, 0ms);
  liveness.heard(2, 500ms);
  EXPECT_THAT(liveness.take_silent(1249ms), IsEmpty());
  EXPECT_THAT(liveness.take_silent(1250ms), ElementsAre(1));
  EXPECT_THAT(liveness.take_silent(1600ms), IsEmpty());
  EXPECT_THAT(liveness.take_silent(1750ms), ElementsAre(2));
  EXPECT_EQ(liveness.next_deadline(), kNever);
}

TEST(Liveness, WakesForTheNextBeatAndTheNextVerdict) {
  Liveness liveness({1}, 1s, 0ms);
  EXPECT_TRUE(liveness.take_beat(0ms));
  EXPECT_FALSE(liveness.take_beat(249ms));
  EXPECT_EQ(liveness.next_deadline(), Nanos(250ms));
  EXPECT_TRUE(liveness.take_beat(1200ms));
  EXPECT_EQ(liveness.next_deadline(), Nanos(1250ms));
}

TEST(Liveness, ForgetsWhoHasTakenLeave) {
  Liveness liveness({1, 2}, 1s, 0ms);
  liveness.forget(1);
  EXPECT_THAT(liveness.watched(), ElementsAre(2));
  EXPECT_THAT(liveness.take_silent(5s), ElementsAre(2));
}

}  // namespace
}  // namespace kolo::internal
