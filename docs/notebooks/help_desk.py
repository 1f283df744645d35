"""A made-up help desk: pages call a service by its official name, and people ask by its nickname."""

SERVICES = {  # nickname: official name, what its page says
    "Heron": ("remote access gateway", "Connects a laptop to the office network from home over an encrypted tunnel."),
    "Biscuit": (
        "travel expense portal",
        "Collects receipts of business trips and pays them back with the next salary.",
    ),
    "Marble": ("meeting room planner", "Reserves rooms and screens in every office, and shows which ones are free."),
    "Otter": ("file archive", "Keeps documents of closed projects for ten years and finds them by their contents."),
    "Lantern": ("print service", "Sends documents to any printer on any floor, released with your badge."),
    "Cobalt": ("payroll self-service", "Shows salary statements and changes the bank account they are paid to."),
    "Willow": ("holiday calendar", "Requests days off, and lets your manager approve them."),
    "Pepper": ("software catalogue", "Installs licensed programs on a managed computer without an administrator."),
    "Comet": ("customer database", "Holds contracts, contacts and notes of all customers in one place."),
    "Thistle": ("password manager", "Stores credentials of teams in shared vaults and fills them into forms."),
    "Quartz": ("source code host", "Keeps repositories, reviews and build pipelines of the engineers."),
    "Maple": ("learning platform", "Offers courses with certificates, some of which everybody must take each year."),
    "Raven": ("incident pager", "Wakes the engineer on call when a system fails at night."),
    "Pebble": ("visitor registration", "Announces guests at the reception and prints their badges."),
    "Fennel": ("cafeteria account", "Pays for lunch by badge, and shows the menu of the week."),
    "Anchor": ("backup service", "Copies a laptop's disk every night and gives back lost folders."),
    "Saffron": ("recruiting tool", "Tracks applicants from their first letter to the contract."),
    "Glacier": ("data warehouse", "Answers reports over sales of all years by SQL."),
    "Juniper": ("parking permits", "Gives a place in the garage to a number plate for a day or a month."),
    "Ember": ("telephone system", "Forwards calls, and reads voice messages as text."),
    "Tulip": ("translation desk", "Has contracts and web pages translated by professionals within two days."),
    "Falcon": ("courier orders", "Picks up parcels at your desk and follows them to the receiver."),
    "Basalt": ("badge office", "Issues entry cards and opens doors for a group of people."),
    "Clover": ("wellbeing fund", "Pays a part of a gym membership or a bicycle."),
}
ASKED = (
    "I cannot log in to {}",
    "{} says my account is locked",
    "how do I open {} on my phone",
    "where do I find the {} settings",
    "{} has been slow since this morning",
    "who can give me rights in {}",
    "the {} page stays empty",
    "how does a new colleague get {}",
)
passages = {name.replace(" ", "-"): f"{name.capitalize()}. {what}" for name, what in SERVICES.values()}
questions = {
    f"{nickname.lower()}-{number}": asked.format(nickname)
    for nickname in SERVICES
    for number, asked in enumerate(ASKED)
}
answers = {
    f"{nickname.lower()}-{number}": official.replace(" ", "-")
    for nickname, (official, _) in SERVICES.items()
    for number in range(len(ASKED))
}


def _asked(numbers: range) -> dict[str, str]:
    return {question: page for question, page in answers.items() if int(question[-1]) in numbers}


clicks, held_out, later = _asked(range(3)), _asked(range(3, 4)), _asked(range(4, 8))  # training, dev and test
