"""Messages of accounts, tokens and namespaces."""

from runtime.messages import Template as _
from runtime.messages import register

LOGIN_CODE_SPENT = _("This code has already been used or is more than two minutes old. Run `regatta login` again.")
LOGIN_ADDRESS_INVALID = _("This address was not created by `regatta login`. Run `regatta login` again.")
TOKEN_REQUIRED = _("This request is authenticated by a session, not by a token; sign out in the browser instead.")
TOO_MANY_REQUESTS_FOR_NOW = _("Too many requests. Wait {seconds} s, then try again.")
SIGN_IN_REQUIRED = _("Sign in first.")
NAMESPACE_NOT_VISIBLE = _("Namespace {namespace} does not exist, or you do not have access to it.")
ROLE_INSUFFICIENT = _("Your role in {namespace} does not allow this ({scope}). Ask an owner of the namespace.")
ADMINS_ONLY = _("Only platform admins can do this. Ask a platform admin.")
TOKEN_NOT_FOUND = _("You do not have this token; it may already have been revoked.")
TOKEN_SCOPE_INSUFFICIENT = _("This token does not allow this ({scope}). Create a token with that scope.")
SESSION_NOT_FOUND = _("You do not have this session; it may already have ended.")
TOKEN_LIMIT_REACHED = _("You have {count} tokens, which is the limit. Revoke tokens that you no longer use.")
SCOPE_UNKNOWN = _("{name} is not a valid scope here. Valid scopes: {names}.")
SCOPE_NOT_GRANTED = _("The token of this request does not grant {scope}. It grants {held}.")
DAYS_OUT_OF_RANGE = _("Enter a whole number of days from 1 to {most}.")
TOKEN_LIFETIME_MISSING = _("Choose how long the token is valid.")
TOKEN_NAME_LENGTH = _("Enter a token name of at most 100 characters.")
SERVICE_TOKEN_ROLE_INVALID = _("The role of a service token must be viewer or developer.")
SERVICE_TOKEN_NAME_TAKEN = _("A service token {name} exists or existed in {namespace}. Choose another name.")
SERVICE_TOKEN_NOT_FOUND = _("The service token does not exist in {namespace}; it may already have been revoked.")
ACCOUNT_NOT_FOUND_ASK_ADMIN = _("Account {name} does not exist. Ask an admin to create it.")
NOT_A_MEMBER = _("{name} is not a member of {namespace}.")
PERSONAL_NAMESPACE_OWNER = _("This is the personal namespace of the account: its owner cannot be removed or changed.")
LAST_OWNER = _("{name} is the last owner of {namespace}. Make another member an owner first.")
PERSONAL_NAMESPACE = _(
    "{namespace} is a personal namespace. It stays with its account: it cannot be transferred or closed."
)
NOT_AN_OWNER = _("You are not an owner of {namespace}, so you cannot transfer its ownership.")
ALREADY_OWNER = _("You already own this namespace. Choose another member.")
ROLE_MISSING = _("Choose a role: viewer, developer or owner.")
NAMESPACE_NOT_CONFIRMED = _("Enter the exact name of the namespace to confirm.")
INVITEE_UNKNOWN = _("{name} is not an existing account or an e-mail address. Enter a username or an e-mail address.")
SELF_INVITATION = _("You cannot invite yourself.")
ALREADY_MEMBER = _("{name} is already a member of {namespace}. Change the role in the list of members.")
INVITATION_ALREADY_OPEN = _("An open invitation already exists. Withdraw it first, then invite again.")
INVITATION_LIMIT_REACHED = _("The namespace has {count} open invitations, which is the limit. Withdraw some first.")
OPEN_INVITATION_NOT_FOUND = _("The invitation does not exist in {namespace}, or it is not open.")
INVITATION_NOT_FOUND = _(
    "The invitation does not exist; it may have been withdrawn. Ask the person who invited you for a new one."
)
INVITATION_ANSWERED = _("This invitation has already been answered.")
INVITATION_EXPIRED = _("This invitation expired on {day}. Ask {name} for a new one.")
CREDENTIALS_WRONG = _("The username or password is incorrect.")
TOO_MANY_SIGN_INS = _("Too many sign-in attempts. Wait {seconds} s, then try again.")
CONFIRMATION_PENDING = _("Confirm your e-mail address first: open the link in the e-mail that we sent you.")
APPROVAL_PENDING = _("An admin must approve your account first. You receive an e-mail when it is approved.")
TOO_MANY_PASSWORD_CHECKS = _("Too many password checks are in progress. Wait {seconds} s, then try again.")
SIGN_IN_TIMED_OUT = _("The sign-in timed out. Sign in with your password again.")
TWO_FACTOR_REQUIRED = _("Set up two-factor authentication first, on your account page.")
TWO_FACTOR_CODE_MISSING = _(
    "This account uses two-factor authentication. Also send a verification code, in the field `code`."
)
TWO_FACTOR_ALREADY_ON = _("Two-factor authentication is already on. Turn it off before you set it up again.")
TWO_FACTOR_CODE_NOT_CURRENT = _("This is not the code that the app shows now. Try the next code.")
TWO_FACTOR_CODE_WRONG = _("The code is incorrect or has already been used. Wait for the next code.")
TOO_MANY_WRONG_CODES = _("Too many incorrect codes. Wait 30 seconds, then try again.")
TWO_FACTOR_NOT_ON = _("Two-factor authentication is not on for your account.")
TWO_FACTOR_KEY_MISSING = _("Create a key first, on the two-factor authentication page.")
TWO_FACTOR_OF_ANOTHER_ACCOUNT = _("You cannot set up two-factor authentication for another account.")
TWO_FACTOR_MANDATORY = _(
    "Admins must use two-factor authentication here. If you lost your device, ask another admin to turn it off for you."
)
SIGN_UP_CLOSED = _("Sign-up is disabled here. Ask an admin to create an account for you.")
EMAIL_MISSING = _("Enter your e-mail address; the e-mail is sent to this address.")
LINK_EXPIRED = _("This link has already been used or has expired. Start again.")
LINK_INCOMPLETE = _("This link is incomplete. Copy the whole link from the e-mail.")
SIGN_UP_PASSWORD_WRONG = _("This is not the password that was set when the account was created.")
OLD_PASSWORD_WRONG = _("This is not your current password.")
NOT_AWAITING_APPROVAL = _("No account {name} is awaiting approval.")
ACCOUNT_NAME_LOOKS_TAKEN = _("Another account has a name that looks the same. Choose another name.")
ACCOUNT_NAME_WITHOUT_LETTERS = _("The name must contain a letter or a digit.")
ACCOUNT_NAME_ENDS = _("The name must begin and end with a letter or a digit.")
ACCOUNT_NAME_MIXES_SCRIPTS = _(
    "The name mixes letters of several scripts, which can look alike. Use letters of one script."
)
ACCOUNT_NAME_DIGITS = _("Use only the digits 0 to 9 in the name.")
EMAIL_TAKEN = _("Another account uses this e-mail address.")
CONNECTED_ACCOUNT_NOT_FOUND = _("Your account does not have this connected account.")
LAST_SIGN_IN_METHOD = _("This is the only way to sign in to your account. Connect another account first.")
OWN_EMAIL_MISSING = _("Your account has no e-mail address; add one first.")
WELCOME_EMAIL_ADDRESS_MISSING = _("Enter the e-mail address for the welcome e-mail.")
EMAIL_NOT_SENT = _("The e-mail could not be sent: {why}")
REASON_REQUIRED = _("Enter a reason of 1 to {count} characters; it is stored in the audit log.")
ACCOUNT_NOT_FOUND = _("Account {name} does not exist.")
ACCOUNT_AWAITING = _("This account is awaiting confirmation or approval; it is enabled when that is done.")
OWN_ACCOUNT_PROTECTED = _("You cannot do this to your own account. Ask another admin.")
LAST_ADMIN = _("{name} is the last admin. Make another account an admin first.")
ACCOUNT_NOT_VIEWABLE = _("You can view the portal only as an enabled account that is not an admin.")
NOT_VIEWING_AS_ANOTHER = _("You are already viewing the portal as yourself.")
VIEWING_READ_ONLY = _("You are viewing as {name} (read-only). Stop viewing to make changes.")
NOT_A_LABEL = _(
    "{name} is not a valid name. Use up to {limit} lowercase letters, digits and hyphens, with a letter or digit "
    "at both ends."
)
NAMESPACE_NAME_RESERVED = _("{name} is reserved for the platform. Choose another name.")
NAMESPACE_NAME_INVALID = _(
    "{name} is not a valid namespace name. Use up to {limit} lowercase letters, digits and single hyphens, with a"
    " letter or digit at both ends."
)
NAMESPACE_NAME_TAKEN = _("The name {name} is taken. Choose another name.")

register("rbac", globals())
