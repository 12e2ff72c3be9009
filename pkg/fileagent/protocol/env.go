package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// EncodeEnv is the value of EnvRequest. fits is false when it is longer than MaxEnv, and must be a file then: EncodeFile.
func EncodeEnv(request *Request) (value string, fits bool) {
	value = base64.StdEncoding.EncodeToString(EncodeFile(request))
	return value, len(value) <= MaxEnv
}

// EncodeFile is the content of the file that EnvRequestFile names.
func EncodeFile(request *Request) []byte {
	text, _ := json.Marshal(request) // strings and numbers
	return text
}

// Environment is what the agent finds in its environment.
type Environment struct {
	Request *Request
	Nonce   string
	Root    string
}

// DecodeEnv reads the environment. The error tells what is missing or cannot be read, and repeats nothing of it.
func DecodeEnv(getenv func(string) string, readFile func(name string) ([]byte, error)) (*Environment, error) {
	e := &Environment{Request: &Request{}, Nonce: getenv(EnvNonce), Root: getenv(EnvRoot)}
	for _, name := range []string{EnvNonce, EnvRoot} {
		if getenv(name) == "" {
			return nil, errors.New(name + " is not set")
		}
	}
	source, text, err := requestText(getenv, readFile)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(e.Request); err != nil {
		return nil, errors.New(source + " is no JSON of a request")
	}
	if decoder.More() {
		return nil, errors.New(source + " has more than a request")
	}
	return e, nil
}

func requestText(getenv func(string) string, readFile func(name string) ([]byte, error)) (source string, text []byte, err error) {
	value, file := getenv(EnvRequest), getenv(EnvRequestFile)
	switch {
	case (value == "") == (file == ""):
		return "", nil, fmt.Errorf("one of %s and %s must be set", EnvRequest, EnvRequestFile)
	case file != "":
		if text, err = readFile(file); err != nil {
			return "", nil, errors.New("the file of " + EnvRequestFile + " cannot be read")
		}
		return "the file of " + EnvRequestFile, text, nil
	}
	if text, err = base64.StdEncoding.DecodeString(value); err != nil {
		return "", nil, errors.New(EnvRequest + " is no base64")
	}
	return EnvRequest, text, nil
}
