//! Local time, which std does not provide.
//!
//! The C library's functions would keep the time zone of their first call: a program that sets TZ
//! later (tzset(3)) would get another time than without Plimsoll.

use std::time::{SystemTime, UNIX_EPOCH};

use tz::{DateTime, TimeZone, TimeZoneRef};

/// Point in time as a wall clock shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    year: i32,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    offset_minutes: i32,
}

impl LocalTime {
    /// Returns the local time of a system time. May read the time zone's file: not for signal
    /// handlers.
    pub fn at(time: SystemTime) -> Self {
        let unix_s = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
        };
        Self::from_unix(unix_s)
    }

    /// UTC if the time zone is unknown, the begin of 1970 if the year is beyond all dates.
    fn from_unix(unix_s: i64) -> Self {
        let zone = match std::env::var("TZ") {
            Ok(name) => TimeZone::from_posix_tz(&name),
            Err(_) => TimeZone::local(),
        };
        let local =
            zone.ok().and_then(|zone| DateTime::from_timespec(unix_s, 0, zone.as_ref()).ok());
        let utc = || DateTime::from_timespec(unix_s, 0, TimeZoneRef::utc()).ok();
        let Some(time) = local.or_else(utc) else { return Self::from_unix(0) };
        Self {
            year: time.year(),
            month: time.month(),
            day: time.month_day(),
            hour: time.hour(),
            minute: time.minute(),
            second: time.second(),
            offset_minutes: time.local_time_type().ut_offset() / 60,
        }
    }

    /// Formats for file names: `20260301T093000`.
    pub fn stamp(&self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
    }

    /// Formats as RFC 3339: `2026-03-01T09:30:00+01:00`.
    pub fn rfc3339(&self) -> String {
        let Self { year, month, day, hour, minute, second, offset_minutes } = self;
        let sign = if *offset_minutes < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset_minutes.abs() / 60, offset_minutes.abs() % 60);
        format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{sign}{hours:02}:\
             {minutes:02}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In any time zone, local time less its offset is UTC.
    #[test]
    fn local_time_is_utc_and_an_offset() {
        for unix_s in [0, 951_782_400, 1_772_353_800, 4_102_444_799] {
            let local = LocalTime::from_unix(unix_s);
            let days = days_since_epoch(local.year.into(), local.month.into(), local.day.into());
            let seconds = days * 86_400
                + i64::from(local.hour) * 3600
                + i64::from(local.minute) * 60
                + i64::from(local.second);
            assert_eq!(seconds - i64::from(local.offset_minutes) * 60, unix_s);
        }
    }

    fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
        let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let years: i64 = (1970..year).map(|year| 365 + i64::from(leap(year))).sum();
        years + lengths[..month as usize - 1].iter().sum::<i64>() + day - 1
    }

    #[test]
    fn forms_are_as_documented() {
        let local = LocalTime {
            year: 2026,
            month: 3,
            day: 1,
            hour: 9,
            minute: 30,
            second: 5,
            offset_minutes: -210,
        };
        assert_eq!(local.stamp(), "20260301T093005");
        assert_eq!(local.rfc3339(), "2026-03-01T09:30:05-03:30");
    }

    #[test]
    fn every_time_is_accepted() {
        assert_eq!(LocalTime::from_unix(i64::MAX).month, 1);
        assert!(LocalTime::at(UNIX_EPOCH - std::time::Duration::from_secs(5)).year <= 1970);
    }
}
