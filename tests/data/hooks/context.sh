#!/bin/sh
# UserPromptSubmit: what is printed goes to the model with the prompt.
cat > /dev/null
echo "The ticket of this branch is PARSER-17."
