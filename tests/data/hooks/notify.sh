#!/bin/sh
# Notification: most people call notify-send, osascript or a webhook here.
message=$(sed -n 's/.*"notification_type":"\([^"]*\)".*/\1/p')
echo "$message" >> "$(dirname "$0")/notified.txt"
