//! Python's `strftime` for a clock that the caller gives, in the C locale.

/// `seconds` is the wall clock to show, in seconds since 1970-01-01 00:00.
pub(crate) fn strftime(seconds: i64, format: &str) -> String {
    let time = Civil::new(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        // glibc's flags: '-' no padding, '_' blanks, '0' zeros, '^' upper case.
        let mut flag = None;
        while let Some(f @ ('-' | '_' | '0' | '^')) = directive {
            flag = Some(f);
            directive = chars.next();
        }
        match directive {
            Some(d) => match time.directive(d, flag) {
                Some(text) if flag == Some('^') => out.push_str(&text.to_uppercase()),
                Some(text) => out.push_str(&text),
                None => {
                    out.push('%');
                    out.push(d);
                }
            },
            None => out.push('%'),
        }
    }
    out
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

struct Civil {
    year: i64,
    month: i64, // 1..12
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    week_day: i64, // 0 = Sunday
    year_day: i64, // 0 = 1 January
}

impl Civil {
    fn new(seconds: i64) -> Civil {
        // The year 1 to 9999, as Python's datetime.
        let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let mut year = 1970 + days.div_euclid(366); // near enough: the steps below are few
        while days < days_before_year(year) {
            year -= 1;
        }
        while days >= days_before_year(year + 1) {
            year += 1;
        }
        let year_day = days - days_before_year(year);
        let mut left = year_day;
        let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while left >= lengths[month] {
            left -= lengths[month];
            month += 1;
        }
        Civil {
            year,
            month: month as i64 + 1,
            day: left + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            week_day: (days + 4).rem_euclid(7),
            year_day,
        }
    }

    fn directive(&self, directive: char, flag: Option<char>) -> Option<String> {
        let padded = |value: i64, width: usize, pad: char| {
            let pad = match flag {
                Some('-') => return value.to_string(),
                Some('_') => ' ',
                Some('0') => '0',
                _ => pad,
            };
            let digits = value.to_string();
            let missing = width.saturating_sub(digits.len());
            pad.to_string().repeat(missing) + &digits
        };
        let twelve = (self.hour + 11) % 12 + 1;
        let half = if self.hour < 12 { "AM" } else { "PM" };
        let month = MONTHS[self.month as usize - 1];
        let day = DAYS[self.week_day as usize];
        let nested = |format: &str| Some(strftime(self.seconds(), format));
        Some(match directive {
            'Y' => padded(self.year, 1, '0'),
            'C' => padded(self.year / 100, 2, '0'),
            'y' => padded(self.year % 100, 2, '0'),
            'm' => padded(self.month, 2, '0'),
            'd' => padded(self.day, 2, '0'),
            'e' => padded(self.day, 2, ' '),
            'H' => padded(self.hour, 2, '0'),
            'k' => padded(self.hour, 2, ' '),
            'I' => padded(twelve, 2, '0'),
            'l' => padded(twelve, 2, ' '),
            'M' => padded(self.minute, 2, '0'),
            'S' => padded(self.second, 2, '0'),
            'f' => "000000".into(),
            'j' => padded(self.year_day + 1, 3, '0'),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'A' => day.into(),
            'a' => day[..3].into(),
            'p' => half.into(),
            'P' => half.to_lowercase(),
            'u' => ((self.week_day + 6) % 7 + 1).to_string(),
            'w' => self.week_day.to_string(),
            'U' => padded((self.year_day + 7 - self.week_day) / 7, 2, '0'),
            'W' => padded((self.year_day + 7 - (self.week_day + 6) % 7) / 7, 2, '0'),
            'G' => self.iso_week().0.to_string(),
            'V' => padded(self.iso_week().1, 2, '0'),
            's' => self.seconds().to_string(),
            'z' | 'Z' => String::new(), // a clock without a zone
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            'F' => return nested("%Y-%m-%d"),
            'T' | 'X' => return nested("%H:%M:%S"),
            'R' => return nested("%H:%M"),
            'D' | 'x' => return nested("%m/%d/%y"),
            'c' => return nested("%a %b %e %H:%M:%S %Y"),
            'r' => return nested("%I:%M:%S %p"),
            _ => return None,
        })
    }

    fn seconds(&self) -> i64 {
        (days_before_year(self.year) + self.year_day) * 86_400 + self.hour * 3600 + self.minute * 60 + self.second
    }

    /// ISO 8601: weeks start on Monday, week 1 holds 4 January.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.week_day + 6) % 7;
        let week = (self.year_day - monday_based + 10) / 7;
        if week < 1 {
            return (self.year - 1, weeks_in_year(self.year - 1));
        }
        if week > weeks_in_year(self.year) {
            return (self.year + 1, 1);
        }
        (self.year, week)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970-01-01 to 1 January of the year.
fn days_before_year(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

fn weeks_in_year(year: i64) -> i64 {
    let first = (days_before_year(year) + 4).rem_euclid(7); // 0 = Sunday
    if first == 4 || (first == 3 && is_leap(year)) {
        53
    } else {
        52
    }
}
